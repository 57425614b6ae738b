#pragma once

#include "base/dtype.h"
#include "base/error.h"

namespace weft::runtime {

/// Calls `body` with a zero of the dtype's C++ type and returns its result: f32, f64, i32 or i64 (internal error for
/// another).
template <typename F>
auto with_number_type(DType dtype, F body) {
  switch (dtype) {
    case DType::kF32:
      return body(float{});
    case DType::kF64:
      return body(double{});
    case DType::kI32:
      return body(int32_t{});
    case DType::kI64:
      return body(int64_t{});
    default:
      internal_error("no kernel of numbers of type {}", name_of(dtype));
  }
}

}  // namespace weft::runtime
