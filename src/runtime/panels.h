#pragma once

#include <cstdint>

#include "runtime/kernels.h"

// The loop over the panels of weights of a fused stage: compiled ahead, since it is the same for all stages, and
// machine code would be longer with it than with all that is the stage's own.

namespace weft::runtime {

inline constexpr int64_t kFewRows = 4;              ///< with fewer rows than this, a micro-kernel takes ...
inline constexpr int64_t kPanelsTogether = 4;       ///< ... this many panels at once
inline constexpr int64_t kBytePanelsTogether = 16;  ///< with weights of 8 bits so many by kFewRows rows: each call
                                                    ///< writes the left operand in digits anew
inline constexpr int64_t kRowsOfOneBlock = 8;       ///< so few by panels are one block, though a tile may have fewer
inline constexpr int64_t kRowsOfColumns = 48;  ///< of a block by weights that are read by columns where they lie, ...
inline constexpr int64_t kMostColumnPanels = 16;  ///< ... and panels: their rows are read in long runs
inline constexpr int64_t kRowsOfTiles = 192;      ///< of a product there is memory for so many, of all its panels
static_assert(kFewRows * kBytePanelsTogether <= kRowsOfTiles);

// Machine code has the next two as constants, so their fields have 8 bytes each.

/// A product of a stage.
struct PanelProduct {
  ProductLayout layout;
  int64_t left_size;          ///< bytes of an element of the left operand
  int64_t panel_bytes;        ///< of one panel
  ProductKernel kernel;       ///< null: weights of 8 bits, which have no panels, by `byte_rows`
  ByteRowsKernel byte_rows;   ///< or null
  int64_t byte_columns;       ///< of such weights: columns of a group that stand for a panel
  PanelsOnTheWay on_the_way;  ///< null: the pack has a stage of its own for certain
  int64_t widens;             ///< 1: `weights` are of 8 bits, panels f32
};

struct PanelStage {
  int64_t tile_rows;   ///< the most rows of a block
  int64_t chunk_rows;  ///< rows whose left operands stay in a core's own cache while all panels pass; 0: all at once
  int64_t units;       ///< vectors of a row
  int64_t panels;      ///< of a product
  int64_t unroll;      ///< units of a panel
  int64_t grain;       ///< units that one member has as a whole; 0: each member has all columns
  int64_t streams;     ///< 1: a core's own cache doesn't hold the panels of all products
  int64_t has_bytes;   ///< 1: a product has weights of 8 bits that have no panels
  int64_t count;       ///< of products
  const PanelProduct* products;
};

/// What machine code stores for a product before the loop, all but the last field.
struct PanelOperands {
  const void* left;     ///< of the first row
  int64_t lda;          ///< elements between its rows
  const void* entry;    ///< of the pack's buffer (pack_entry.h), or weights of 8 bits
  const void* weights;  ///< those that are not packed, or null
  void* tile;           ///< memory for tiles of the product
  const void* panels;   ///< set by the loop: as the kernel takes them, for the panels at hand
};

/// Machine code of a stage for the rows row..row+rows-1 and the panels panel..panel+panels-1: what follows on the
/// products, whose tiles are those of ProductKernel, or asks for what that will read.
using PanelFunction = void (*)(void* closure, int64_t panel, int64_t panels, int64_t row, int64_t rows);

/// The functions of a stage, and the values that they share with it.
struct PanelFunctions {
  PanelFunction epilogue;
  void* closure;
  PanelFunction prefetch;  ///< or null
  void* prefetch_closure;
};

/// The rows first..last-1 of a stage, `steps` times, each time `apart` rows further on, and the share `unit` of `units`
/// of its columns: for each panel of weights and each block of rows, the products' tiles and then the epilogue.
/// `backwards`: the last panel first (1 or 0).
extern "C" void weft_panels(const PanelStage* stage, PanelOperands* operands, const PanelFunctions* functions,
                            int64_t first, int64_t last, int64_t steps, int64_t apart, int64_t unit, int64_t units,
                            int64_t backwards);

}  // namespace weft::runtime
