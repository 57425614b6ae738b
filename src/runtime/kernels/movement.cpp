#include "runtime/kernels/movement.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/division.h"
#include "base/error.h"

namespace weft::runtime {
namespace {

constexpr int64_t kUnitBytes = 64 << 10;
/// Short runs that lie apart are copied together, up to this many bytes in one unit of work: a unit costs about a
/// hundred instructions.
constexpr int64_t kShortBytes = 4 << 10;
/// Elements along each side of a tile: whole cache lines on both sides for every element size.
constexpr int64_t kTile = 64;

/// How many rows ahead of the copy are prefetched: the hardware's prefetcher doesn't follow rows that lie far apart.
constexpr int64_t kRowsAhead = 2;

/// Calls `body` with the unsigned integer type of this size. Elements are moved as integers, whatever their type.
template <typename Body>
void with_element(int64_t size, Body body) {
  switch (size) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    case 8:
      return body(uint64_t{});
  }
  internal_error("no copy of elements of {} bytes", size);
}

template <typename T>
T read(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void write(char* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <typename T>
void copy_run(const char* source, int64_t source_step, char* destination, int64_t destination_step, int64_t count) {
  constexpr int64_t kSize = sizeof(T);
  if (destination_step != kSize) {
    for (int64_t i = 0; i < count; ++i) write(destination + i * destination_step, read<T>(source + i * source_step));
  } else if (source_step == kSize) {
    std::memcpy(destination, source, static_cast<size_t>(count * kSize));
  } else if (source_step == -kSize) {
    for (int64_t i = 0; i < count; ++i) write(destination + i * kSize, read<T>(source - i * kSize));
  } else if (source_step == 0) {
    const T value = read<T>(source);
    for (int64_t i = 0; i < count; ++i) write(destination + i * kSize, value);
  } else {
    for (int64_t i = 0; i < count; ++i) write(destination + i * kSize, read<T>(source + i * source_step));
  }
}

/// Copies rows of kBytes, each with one load and store of registers.
template <int64_t kBytes>
void copy_short_rows(const char* source, int64_t source_step, char* destination, int64_t destination_step,
                     int64_t rows) {
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(destination + row * destination_step, source + row * source_step, kBytes);
}

/// Copies rows of contiguous bytes, and prefetches the next ones.
void copy_long_rows(const char* source, int64_t source_step, char* destination, int64_t destination_step, int64_t rows,
                    int64_t bytes) {
  for (int64_t row = 0; row < rows; ++row, source += source_step, destination += destination_step) {
    for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(source + kRowsAhead * source_step + line);
    std::memcpy(destination, source, static_cast<size_t>(bytes));
  }
}

/// N x N elements: rows are contiguous in the source, columns in the destination. Through registers, so that each side
/// is touched in runs.
template <typename T, int64_t N>
void transpose_block(const char* source, int64_t source_step, char* destination, int64_t destination_step) {
  T block[N][N];
  for (int64_t i = 0; i < N; ++i) std::memcpy(block[i], source + i * source_step, sizeof(block[i]));
  for (int64_t j = 0; j < N; ++j) {
    T column[N];
    for (int64_t i = 0; i < N; ++i) column[i] = block[i][j];
    std::memcpy(destination + j * destination_step, column, sizeof(column));
  }
}

/// destination[j * destination_step + i * sizeof(T)] = source[i * source_step + j * sizeof(T)], i < columns, j < rows.
template <typename T>
void transpose_tile(const char* source, int64_t source_step, char* destination, int64_t destination_step,
                    int64_t columns, int64_t rows) {
  constexpr int64_t kSize = sizeof(T), kBlock = sizeof(T) == 8 ? 4 : 16 / kSize;
  const int64_t whole_columns = columns / kBlock * kBlock, whole_rows = rows / kBlock * kBlock;
  for (int64_t j = 0; j < whole_rows; j += kBlock)
    for (int64_t i = 0; i < whole_columns; i += kBlock)
      transpose_block<T, kBlock>(source + i * source_step + j * kSize, source_step,
                                 destination + j * destination_step + i * kSize, destination_step);
  for (int64_t j = 0; j < rows; ++j) {
    const int64_t first = j < whole_rows ? whole_columns : 0;
    copy_run<T>(source + first * source_step + j * kSize, source_step,
                destination + j * destination_step + first * kSize, kSize, columns - first);
  }
}

}  // namespace

StridedCopy::StridedCopy(std::span<const CopyDim> dims, int64_t element_size) : element_size_(element_size) {
  internal_check(element_size == 1 || element_size == 2 || element_size == 4 || element_size == 8,
                 "no copy of elements of {} bytes", element_size);
  for (const CopyDim& dim : dims)
    if (dim.size == 0) return;
  normalise(dims);
  choose_units();
}

/// Drops dims of size 1, and orders the others by the destination's steps. Neighbours that are contiguous on both sides
/// become one dim.
void StridedCopy::normalise(std::span<const CopyDim> dims) {
  for (const CopyDim& dim : dims)
    if (dim.size != 1)
      outer_.push_back({dim.size, dim.source_step * element_size_, dim.destination_step * element_size_});
  for (size_t i = 1; i < outer_.size(); ++i)
    for (size_t j = i; j > 0 && std::abs(outer_[j - 1].destination_step) < std::abs(outer_[j].destination_step); --j)
      std::swap(outer_[j - 1], outer_[j]);
  InlineVector<CopyDim, kMaxCopyDims> joined;
  for (const CopyDim& dim : outer_) {
    if (!joined.empty() && joined.back().source_step == dim.source_step * dim.size &&
        joined.back().destination_step == dim.destination_step * dim.size) {
      joined.back() = {joined.back().size * dim.size, dim.source_step, dim.destination_step};
    } else {
      joined.push_back(dim);
    }
  }
  outer_ = joined;
  inner_ = {1, element_size_, element_size_};
  if (outer_.empty()) return;
  inner_ = outer_.back();
  outer_.pop_back();
}

void StridedCopy::choose_units() {
  if (inner_.destination_step == element_size_ && inner_.source_step != element_size_ && inner_.size > 1) {
    const auto contiguous = std::find_if(outer_.begin(), outer_.end(),
                                         [&](const CopyDim& dim) { return dim.source_step == element_size_; });
    if (contiguous != outer_.end()) {
      tile_ = *contiguous;
      is_tiled_ = true;
      outer_.erase(contiguous);
    }
  }
  if (!is_tiled_ && !outer_.empty()) {
    tile_ = outer_.back();
    outer_.pop_back();
  }
  inner_piece_ = is_tiled_ ? kTile : kUnitBytes / element_size_;
  tile_piece_ = is_tiled_ ? kTile : std::max<int64_t>(1, kShortBytes / (inner_.size * element_size_));
  units_ = ceil_div(inner_.size, inner_piece_) * ceil_div(tile_.size, tile_piece_);
  for (const CopyDim& dim : outer_) units_ *= dim.size;
}

void StridedCopy::copy(const Piece& piece) const {
  const char* source = piece.source + piece.first * inner_.source_step + piece.row * tile_.source_step;
  char* destination = piece.destination + piece.first * inner_.destination_step + piece.row * tile_.destination_step;
  with_element(element_size_, [&]<typename T>(T) {
    if (is_tiled_) {
      transpose_tile<T>(source, inner_.source_step, destination, tile_.destination_step, piece.count, piece.rows);
    } else {
      copy_rows<T>(source, destination, piece.count, piece.rows);
    }
  });
}

template <typename T>
void StridedCopy::copy_rows(const char* source, char* destination, int64_t count, int64_t rows) const {
  const int64_t from = tile_.source_step, to = tile_.destination_step;
  const bool is_contiguous = inner_.source_step == element_size_ && inner_.destination_step == element_size_;
  const bool is_whole_row = count == inner_.size;  // a part of a row is longer than what is worth prefetching
  if (!is_contiguous || !is_whole_row) {
    for (int64_t row = 0; row < rows; ++row, source += from, destination += to)
      copy_run<T>(source, inner_.source_step, destination, inner_.destination_step, count);
    return;
  }
  switch (count * element_size_) {
    case 8:
      return copy_short_rows<8>(source, from, destination, to, rows);
    case 16:
      return copy_short_rows<16>(source, from, destination, to, rows);
    case 32:
      return copy_short_rows<32>(source, from, destination, to, rows);
    case 64:
      return copy_short_rows<64>(source, from, destination, to, rows);
    default:
      return copy_long_rows(source, from, destination, to, rows, count * element_size_);
  }
}

void StridedCopy::run(const void* source, void* destination, int64_t begin, int64_t end) const {
  if (begin >= end) return;
  const int64_t across = ceil_div(inner_.size, inner_piece_), down = ceil_div(tile_.size, tile_piece_);
  // Finds the index of unit `begin`, then counts up like an odometer.
  InlineVector<int64_t, kMaxCopyDims> at(outer_.size(), 0);
  Piece piece{static_cast<const char*>(source), static_cast<char*>(destination), 0, 0, 0, 0};
  int64_t rest = begin / (across * down);
  for (size_t d = outer_.size(); d-- > 0; rest /= outer_[d].size) {
    at[d] = rest % outer_[d].size;
    piece.source += at[d] * outer_[d].source_step;
    piece.destination += at[d] * outer_[d].destination_step;
  }
  int64_t x = begin % across, y = begin / across % down;
  for (int64_t unit = begin; unit < end; ++unit) {
    piece.first = x * inner_piece_;
    piece.count = std::min(inner_piece_, inner_.size - piece.first);
    piece.row = y * tile_piece_;
    piece.rows = std::min(tile_piece_, tile_.size - piece.row);
    copy(piece);
    if (++x < across) continue;
    x = 0;
    if (++y < down) continue;
    y = 0;
    for (size_t d = outer_.size(); d-- > 0;) {
      piece.source += outer_[d].source_step;
      piece.destination += outer_[d].destination_step;
      if (++at[d] < outer_[d].size) break;
      piece.source -= outer_[d].size * outer_[d].source_step;
      piece.destination -= outer_[d].size * outer_[d].destination_step;
      at[d] = 0;
    }
  }
}

namespace {

/// Calls `body` with the index as a pointer to integers of its own type.
template <typename Body>
auto with_index(const RowIndex& index, Body body) {
  return index.is_64_bit ? body(static_cast<const int64_t*>(index.data))
                         : body(static_cast<const int32_t*>(index.data));
}

}  // namespace

std::optional<int64_t> first_out_of_range(const RowIndex& index, int64_t rows, int64_t begin, int64_t end) {
  return with_index(index, [&](const auto* values) -> std::optional<int64_t> {
    for (int64_t i = begin; i < end; ++i)
      if (values[i] < 0 || values[i] >= rows) return values[i];
    return std::nullopt;
  });
}

std::optional<int64_t> gather_rows(const void* table, int64_t rows, int64_t row_bytes, const RowIndex& index,
                                   void* destination, int64_t begin, int64_t end) {
  return with_index(index, [&](const auto* values) -> std::optional<int64_t> {
    const char* from = static_cast<const char*>(table);
    char* to = static_cast<char*>(destination) + begin * row_bytes;
    for (int64_t i = begin; i < end; ++i, to += row_bytes) {
      const int64_t row = values[i];
      if (row < 0 || row >= rows) return row;
      if (row_bytes > 0) std::memcpy(to, from + row * row_bytes, static_cast<size_t>(row_bytes));
    }
    return std::nullopt;
  });
}

std::optional<int64_t> scatter_rows(const void* table, const RowIndex& index, const void* updates, void* result,
                                    int64_t rows, int64_t row_bytes, int64_t row_begin, int64_t row_end) {
  if (const auto bad = first_out_of_range(index, rows, 0, index.count)) return bad;
  if (row_bytes == 0 || row_begin >= row_end) return std::nullopt;
  const auto width = static_cast<size_t>(row_bytes);
  char* to = static_cast<char*>(result);
  std::memcpy(to + row_begin * row_bytes, static_cast<const char*>(table) + row_begin * row_bytes,
              static_cast<size_t>(row_end - row_begin) * width);
  with_index(index, [&](const auto* values) {
    for (int64_t i = 0; i < index.count; ++i)
      if (values[i] >= row_begin && values[i] < row_end)
        std::memcpy(to + values[i] * row_bytes, static_cast<const char*>(updates) + i * row_bytes, width);
    return 0;
  });
  return std::nullopt;
}

template <typename T>
std::optional<int64_t> scatter_add_rows(const RowIndex& index, const T* updates, T* table, int64_t rows,
                                        int64_t columns, int64_t row_begin, int64_t row_end, int64_t column_begin,
                                        int64_t column_end) {
  if (const auto bad = first_out_of_range(index, rows, 0, index.count)) return bad;
  const int64_t width = column_end - column_begin;
  if (width <= 0) return std::nullopt;
  for (int64_t row = row_begin; row < row_end; ++row) std::fill_n(table + row * columns + column_begin, width, T(0));
  with_index(index, [&](const auto* values) {
    for (int64_t i = 0; i < index.count; ++i) {
      const int64_t row = values[i];
      if (row < row_begin || row >= row_end) continue;
      T* to = table + row * columns + column_begin;
      const T* from = updates + i * columns + column_begin;
      for (int64_t c = 0; c < width; ++c) to[c] += from[c];
    }
    return 0;
  });
  return std::nullopt;
}

template std::optional<int64_t> scatter_add_rows(const RowIndex&, const float*, float*, int64_t, int64_t, int64_t,
                                                 int64_t, int64_t, int64_t);
template std::optional<int64_t> scatter_add_rows(const RowIndex&, const double*, double*, int64_t, int64_t, int64_t,
                                                 int64_t, int64_t, int64_t);

}  // namespace weft::runtime
