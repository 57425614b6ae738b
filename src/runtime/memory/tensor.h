#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace weft::runtime {

/// A dense row-major tensor that somebody else owns. `data` may be null when it has no elements.
struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::span<const int64_t> sizes;
};

}  // namespace weft::runtime
