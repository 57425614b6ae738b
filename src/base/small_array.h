#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace weft {

/// An array whose number of elements is fixed when it is made. Up to N elements need no allocation. The elements are
/// not initialised unless their type does that.
template <typename T, size_t N>
class SmallArray {
 public:
  explicit SmallArray(size_t size) : size_(size) {
    if (size > N) many_ = std::make_unique_for_overwrite<T[]>(size);
  }

  size_t size() const { return size_; }
  T* data() { return many_ ? many_.get() : few_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }

 private:
  size_t size_;
  std::array<T, N> few_;
  std::unique_ptr<T[]> many_;
};

}  // namespace weft
