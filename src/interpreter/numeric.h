#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"

namespace weft::interpreter {

/// Storage of bool, f16 and bf16; the other dtypes are C++ types.
struct Bool8 {
  uint8_t bits;
};
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

float float_from_half(uint16_t bits);
uint16_t half_from_float(float value);  ///< to nearest, ties to even

/// The type in which an element of storage type T is computed: f32 for f16 and bf16, else T.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float,
                                   std::conditional_t<std::is_same_v<T, Bool8>, bool, T>>;

/// The type in which sums and products accumulate: f64 for f32, so that the interpreter can judge faster code; f32 for
/// f16 and bf16; unsigned 64-bit integers, which wrap, for integers.
template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float,
                       std::conditional_t<std::is_same_v<T, float> || std::is_same_v<T, double>, double, uint64_t>>;

template <typename T>
Compute<T> load(T value) {
  if constexpr (std::is_same_v<T, Bool8>)
    return value.bits != 0;
  else if constexpr (std::is_same_v<T, Half>)
    return float_from_half(value.bits);
  else if constexpr (std::is_same_v<T, BFloat16>)
    return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
  else
    return value;
}

template <typename T>
T store(Compute<T> value) {
  if constexpr (std::is_same_v<T, Bool8>) {
    return {static_cast<uint8_t>(value)};
  } else if constexpr (std::is_same_v<T, Half>) {
    return {half_from_float(value)};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    auto bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
    return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
  } else {
    return value;
  }
}

/// The op `cast`: floating to integer truncates toward zero and saturates, NaN gives 0; integer to integer wraps;
/// anything but 0 is true.
template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(value)) return 0;
    // -min is a power of two, exact in any floating type; max is not.
    constexpr From kAboveMax = std::is_signed_v<To> ? -static_cast<From>(std::numeric_limits<To>::min())
                                                    : static_cast<From>(std::numeric_limits<To>::max()) + 1;
    if (value >= kAboveMax) return std::numeric_limits<To>::max();
    if (value <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <typename T>
struct Tag {
  using Type = T;
};

/// Calls f with the Tag of a floating dtype's storage type.
template <typename F>
void dispatch_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF16:
      return f(Tag<Half>{});
    case DType::kBF16:
      return f(Tag<BFloat16>{});
    case DType::kF32:
      return f(Tag<float>{});
    case DType::kF64:
      return f(Tag<double>{});
    default:
      internal_error("{} is not floating", name_of(dtype));
  }
}

template <typename F>
void dispatch_integer(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI8:
      return f(Tag<int8_t>{});
    case DType::kU8:
      return f(Tag<uint8_t>{});
    case DType::kI16:
      return f(Tag<int16_t>{});
    case DType::kI32:
      return f(Tag<int32_t>{});
    case DType::kI64:
      return f(Tag<int64_t>{});
    default:
      internal_error("{} is not an integer type", name_of(dtype));
  }
}

/// Every dtype but bool.
template <typename F>
void dispatch_number(DType dtype, F&& f) {
  if (is_floating(dtype)) return dispatch_floating(dtype, f);
  dispatch_integer(dtype, f);
}

template <typename F>
void dispatch_any(DType dtype, F&& f) {
  if (dtype == DType::kBool) return f(Tag<Bool8>{});
  dispatch_number(dtype, f);
}

}  // namespace weft::interpreter
