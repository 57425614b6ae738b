#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/error.h"

namespace weft {

/// A vector of at most N elements without allocation, for code that makes one in every step of a loop. Internal error
/// when there are more.
template <typename T, size_t N>
class InlineVector {
 public:
  InlineVector() = default;
  InlineVector(size_t count, const T& value) {
    for (size_t i = 0; i < count; ++i) push_back(value);
  }

  void push_back(const T& value) {
    internal_check(size_ < N, "more than {} elements", N);
    items_[size_++] = value;
  }
  void pop_back() { --size_; }
  void erase(T* at) {
    std::move(at + 1, end(), at);
    --size_;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return items_.data(); }
  const T* data() const { return items_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  T& back() { return items_[size_ - 1]; }
  const T& back() const { return items_[size_ - 1]; }

 private:
  std::array<T, N> items_;
  size_t size_ = 0;
};

}  // namespace weft
