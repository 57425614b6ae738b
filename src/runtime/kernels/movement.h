#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/inline_vector.h"

namespace weft::runtime {

/// One dim of a copy: its size, and the distance of its elements on each side, in elements. A source step of 0 repeats
/// one element. A negative step runs backwards; the data pointer is then that of the element that is copied first.
struct CopyDim {
  int64_t size, source_step, destination_step;
};

/// The most dims of a copy: the rank of a tensor.
inline constexpr size_t kMaxCopyDims = 16;

/// A copy between two strided layouts, cut into units that threads can share: transpositions, reversals, slices, parts
/// of a concatenation, broadcasts. Elements of the destination must not overlap.
class StridedCopy {
 public:
  /// `element_size`: 1, 2, 4 or 8 bytes (internal error otherwise). Up to kMaxCopyDims dims, in any order.
  StridedCopy(std::span<const CopyDim> dims, int64_t element_size);

  /// The number of pieces of at most 64 KiB, which may be copied in any order; 0 when there are no elements.
  int64_t units() const { return units_; }

  /// Copies the units begin..end-1.
  void run(const void* source, void* destination, int64_t begin, int64_t end) const;

 private:
  /// Sizes in units or elements, steps in bytes.
  struct Piece {
    const char* source;
    char* destination;
    int64_t first, count;  ///< range along the innermost dim
    int64_t row, rows;     ///< range along tile_
  };

  void normalise(std::span<const CopyDim> dims);
  void choose_units();
  void copy(const Piece& piece) const;
  template <typename T>
  void copy_rows(const char* source, char* destination, int64_t count, int64_t rows) const;

  int64_t element_size_;
  InlineVector<CopyDim, kMaxCopyDims> outer_;  ///< steps in bytes; the destination's widest first
  CopyDim inner_{1, 0, 0};                     ///< the destination's narrowest
  CopyDim tile_{1, 0, 0};  ///< the dim beside inner_; with is_tiled_ the contiguous one of the source
  bool is_tiled_ = false;
  int64_t inner_piece_ = 1, tile_piece_ = 1;  ///< elements of a unit along inner_ and tile_
  int64_t units_ = 0;
};

/// Rows of a table chosen by an index, for gather_rows and scatter_add_rows.
struct RowIndex {
  const void* data;
  int64_t count;
  bool is_64_bit;  ///< int64_t elements, otherwise int32_t
};

/// The first element of `index` in begin..end-1 that is not in 0..rows-1.
std::optional<int64_t> first_out_of_range(const RowIndex& index, int64_t rows, int64_t begin, int64_t end);

/// destination row i = table row index[i], for i in begin..end-1; `table` has `rows` rows of `row_bytes`. Stops at an
/// index that is out of range and returns it.
std::optional<int64_t> gather_rows(const void* table, int64_t rows, int64_t row_bytes, const RowIndex& index,
                                   void* destination, int64_t begin, int64_t end);

/// result [rows] = the table's rows of `row_bytes` with row index[i] replaced by row i of updates; of equal indices the
/// last one wins. Writes rows row_begin..row_end-1 only, so that threads can share the rows. Returns an index outside
/// 0..rows-1, whichever thread's rows it is for, before anything is written.
std::optional<int64_t> scatter_rows(const void* table, const RowIndex& index, const void* updates, void* result,
                                    int64_t rows, int64_t row_bytes, int64_t row_begin, int64_t row_end);

/// table [rows, columns] = the sum of updates [index.count, columns] over rows of equal index, in order of the updates.
/// Writes the rectangle row_begin..row_end-1, column_begin..column_end-1 of the table only, and all of it (zeros if
/// nothing is added), so that threads can share the table without order. Returns an index outside 0..rows-1, whichever
/// thread's rows it is for, before anything is written. T is float or double.
template <typename T>
std::optional<int64_t> scatter_add_rows(const RowIndex& index, const T* updates, T* table, int64_t rows,
                                        int64_t columns, int64_t row_begin, int64_t row_end, int64_t column_begin,
                                        int64_t column_end);

}  // namespace weft::runtime
