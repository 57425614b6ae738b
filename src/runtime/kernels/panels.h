#pragma once

#include <cstdint>

#include "runtime/kernels/kernels.h"

// The loop over the panels of weights of a fused stage. It is compiled ahead, since it is the same for all stages and,
// if generated, would be longer than all else in a stage's machine code.

namespace weft::runtime {

inline constexpr int64_t kFewRows = 4;              ///< with fewer rows than this, a micro-kernel takes ...
inline constexpr int64_t kPanelsTogether = 4;       ///< ... this many panels at once
inline constexpr int64_t kBytePanelsTogether = 16;  ///< with weights of 8 bits so many by kFewRows rows: each call
                                                    ///< writes the left operand in digits anew
inline constexpr int64_t kRowsOfOneBlock = 8;     ///< so few rows by panels are one block, though a tile may have fewer
inline constexpr int64_t kRowsOfPlain = 48;       ///< rows of a block by weights read as they lie, once for all rows
inline constexpr int64_t kMostColumnPanels = 16;  ///< panels at once of such weights read by columns, in long runs
inline constexpr int64_t kRowsOfTiles = 192;      ///< rows of all panels of a product that there is memory for
static_assert(kFewRows * kBytePanelsTogether <= kRowsOfTiles);

// Machine code holds the next two structs as constants, so each of their fields has 8 bytes.

/// A product of a stage.
struct PanelProduct {
  ProductLayout layout;
  int64_t left_size;          ///< bytes of an element of the left operand
  int64_t panel_bytes;        ///< of one panel
  ProductKernel kernel;       ///< null: weights of 8 bits, which have no panels, by `byte_rows`
  ByteRowsKernel byte_rows;   ///< or null
  int64_t byte_columns;       ///< for weights of 8 bits: the columns of a group that count as one panel
  PanelsOnTheWay on_the_way;  ///< null: a stage of its own packs the weights in any case
  int64_t widens;             ///< 1: `weights` are of 8 bits, panels f32
};

struct PanelStage {
  int64_t tile_rows;   ///< the most rows of a block
  int64_t chunk_rows;  ///< rows whose left operands stay in a core's own cache while all panels pass; 0: all at once
  int64_t units;       ///< vectors of a row
  int64_t panels;      ///< panels of a product
  int64_t unroll;      ///< units of a panel
  int64_t grain;       ///< a member's columns are a multiple of this many units; 0: each member has all columns
  int64_t streams;     ///< 1: a core's own cache doesn't hold the panels of all products
  int64_t has_bytes;   ///< 1: a product has weights of 8 bits that have no panels
  int64_t count;       ///< of products
  const PanelProduct* products;
};

/// What machine code stores about a product before the loop. The loop sets the last field.
struct PanelOperands {
  const void* left;     ///< of the first row
  int64_t lda;          ///< elements between its rows
  const void* entry;    ///< of the pack's buffer (pack_entry.h), or weights of 8 bits
  const void* weights;  ///< the unpacked weights, or null
  void* tile;           ///< memory for tiles of the product
  const void* panels;   ///< set by the loop: as the kernel takes them, for the panels at hand
};

/// Machine code of a stage for the rows row..row+rows-1 and the panels panel..panel+panels-1. It is either the
/// epilogue, which works on the products' tiles (of ProductKernel), or a prefetch of the epilogue's operands.
using PanelFunction = void (*)(void* closure, int64_t panel, int64_t panels, int64_t row, int64_t rows);

/// The functions of a stage, and closures with the values that they share with it.
struct PanelFunctions {
  PanelFunction epilogue;
  void* closure;
  PanelFunction prefetch;  ///< or null
  void* prefetch_closure;
};

/// Runs the rows first..last-1 of a stage `steps` times, `apart` rows further on each time, for the share `unit` of
/// `units` of its columns. For each panel of weights and each block of rows it runs the products' tiles and then the
/// epilogue. `backwards`: the last panel first (1 or 0).
extern "C" void weft_panels(const PanelStage* stage, PanelOperands* operands, const PanelFunctions* functions,
                            int64_t first, int64_t last, int64_t steps, int64_t apart, int64_t unit, int64_t units,
                            int64_t backwards);

}  // namespace weft::runtime
