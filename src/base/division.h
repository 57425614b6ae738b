#pragma once

#include <cstdint>

namespace weft {

/// a / b, rounded up; a >= 0, b > 0. (src/runtime/simd has its own, see its vector.h.)
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The least multiple of b that is not less than a; a >= 0, b > 0.
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace weft
