#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace weft::interpreter {

/// A dense row-major tensor to read, in memory that somebody else owns.
struct View {
  DType dtype = DType::kF32;
  std::span<const int64_t> sizes;
  const void* data = nullptr;  ///< may be null when there are no elements
};

/// A dense row-major tensor to write, in memory that somebody else owns.
struct MutableView {
  DType dtype = DType::kF32;
  std::span<const int64_t> sizes;
  void* data = nullptr;
};

/// The product of sizes. Throws std::bad_alloc where it overflows.
int64_t count_of(std::span<const int64_t> sizes);

/// A dense row-major tensor with its own memory.
struct Array {
  DType dtype = DType::kF32;
  std::vector<int64_t> sizes;
  std::vector<std::byte> bytes;

  Array() = default;
  /// All zeros. Throws std::bad_alloc when that much memory cannot be had.
  Array(DType dtype, std::vector<int64_t> sizes);
  static Array copy_of(const View& view);

  /// From numbers, rounded to the dtype; user's error unless there are as many as elements.
  static Array of(DType dtype, std::vector<int64_t> sizes, std::span<const double> values);
  /// All elements as f64 (i64 beyond 2^53 rounds).
  std::vector<double> to_doubles() const;

  int64_t count() const { return count_of(sizes); }
  View view() const { return {dtype, sizes, bytes.data()}; }
  MutableView view() { return {dtype, sizes, bytes.data()}; }
  template <typename T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  template <typename T>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
};

}  // namespace weft::interpreter
