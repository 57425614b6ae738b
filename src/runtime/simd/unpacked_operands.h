#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/first.h"
#include "runtime/simd/pack.h"
#include "runtime/simd/tile.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

// Shared by products of unpacked weights (unpacked.h): kinds of operands, and where sums are stored.

/// The 16-bit floats of a vector: bf16 are the high halves of f32.
using HalfVector __attribute__((vector_size(kVectorBytes / 2))) = uint16_t;
using UnalignedHalves __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias)) = uint16_t;
using WideBits __attribute__((vector_size(kVectorBytes))) = uint32_t;

[[gnu::always_inline]] inline Vector<float> widen(HalfVector halves) {
  return reinterpret_cast<Vector<float>>(__builtin_convertvector(halves, WideBits) << 16);
}
[[gnu::always_inline]] inline Vector<float> load_wide(const uint16_t* p) {
  return widen(*reinterpret_cast<const UnalignedHalves*>(p));
}
[[gnu::always_inline]] inline Vector<float> load_wide_first(const uint16_t* p, int64_t count) {
  return widen(first_of<HalfVector>(p, count));
}

/// An element of a left operand as one of the sums: bf16 are widened.
template <typename T>
[[gnu::always_inline]] inline T scalar(const T* p) {
  return *p;
}
[[gnu::always_inline]] inline float scalar(const uint16_t* p) { return __builtin_bit_cast(float, uint32_t{*p} << 16); }

/// Weights of the sums' type, or of Source, which is converted to it. A kind says how operands are read: `kSteps` steps
/// of a dot product at once, or a vector of columns of one step. Functions that end in `_first` read less than a
/// vector, and give 0 in the other lanes.
template <typename T, typename Source = T>
struct PlainWeights {
  using Left = T;
  using Right = Source;
  using Sum = T;
  static constexpr int kSteps = Simd<T>::kLanes;

  [[gnu::always_inline]] static Vector<T> left(const T* p) { return load(p); }
  [[gnu::always_inline]] static Vector<T> left_first(const T* p, int64_t count) { return load_first(p, count); }
  [[gnu::always_inline]] static Vector<T> right(const Source* p) { return load(p); }
  [[gnu::always_inline]] static Vector<T> right_first(const Source* p, int64_t count) { return load_first(p, count); }
  [[gnu::always_inline]] static void add(Vector<T>& sum, Vector<T> x, Vector<T> y) { sum += x * y; }
  [[gnu::always_inline]] static Vector<T> columns(const Source* p) { return load(p); }
  [[gnu::always_inline]] static Vector<T> columns_first(const Source* p, int64_t count) { return load_first(p, count); }
};

/// The widened bf16 at even and at odd places of two vectors' worth: a shift and a mask instead of two widening loads.
/// (AVX2, Zen 3, one row by 4096 rows of 1024: 17 GB/s of weights with widening loads, 43 with shift and mask.)
struct EvenOdd {
  Vector<float> even, odd;
};

[[gnu::always_inline]] inline EvenOdd split(WideBits pairs) {
  return {reinterpret_cast<Vector<float>>(pairs << 16), reinterpret_cast<Vector<float>>(pairs & 0xffff0000U)};
}
[[gnu::always_inline]] inline EvenOdd load_split(const uint16_t* p) {
  using Unaligned __attribute__((vector_size(kVectorBytes), aligned(2), may_alias)) = uint32_t;
  return split(*reinterpret_cast<const Unaligned*>(p));
}
[[gnu::always_inline]] inline EvenOdd load_split_first(const uint16_t* p, int64_t count) {
  return split(first_of<WideBits>(p, count));
}

template <int... Lane>
[[gnu::always_inline]] inline EvenOdd split_floats(Vector<float> low, Vector<float> high, Lanes<Lane...>) {
  return {__builtin_shufflevector(low, high, (2 * Lane)...), __builtin_shufflevector(low, high, (2 * Lane + 1)...)};
}

/// bf16 weights: the products are those of the widened operands.
struct HalfColumns {
  using Right = uint16_t;
  using Sum = float;
  static constexpr int kSteps = 2 * Simd<float>::kLanes;

  [[gnu::always_inline]] static EvenOdd right(const uint16_t* p) { return load_split(p); }
  [[gnu::always_inline]] static EvenOdd right_first(const uint16_t* p, int64_t count) {
    return load_split_first(p, count);
  }
  [[gnu::always_inline]] static void add(Vector<float>& sum, const EvenOdd& x, const EvenOdd& y) {
    sum += x.even * y.even;
    sum += x.odd * y.odd;
  }
  [[gnu::always_inline]] static Vector<float> columns(const uint16_t* p) { return load_wide(p); }
  [[gnu::always_inline]] static Vector<float> columns_first(const uint16_t* p, int64_t count) {
    return load_wide_first(p, count);
  }
};

struct HalfWeights : HalfColumns {
  using Left = float;

  [[gnu::always_inline]] static EvenOdd left(const float* p) {
    return split_floats(load(p), load(p + Simd<float>::kLanes), AllLanes<float>());
  }
  [[gnu::always_inline]] static EvenOdd left_first(const float* p, int64_t count) {
    constexpr int64_t kLanes = Simd<float>::kLanes;
    const int64_t low = smaller(count, kLanes);
    return split_floats(load_first(p, low), load_first(p + low, count - low), AllLanes<float>());
  }
};

/// Both operands bf16.
struct HalfOperands : HalfColumns {
  using Left = uint16_t;
#if defined(__AVX512BF16__)
  [[gnu::always_inline]] static __m512i left(const uint16_t* p) { return _mm512_loadu_si512(p); }
  [[gnu::always_inline]] static __m512i left_first(const uint16_t* p, int64_t count) {
    return first_of<__m512i>(p, count);
  }
  [[gnu::always_inline]] static __m512i right(const uint16_t* p) { return left(p); }
  [[gnu::always_inline]] static __m512i right_first(const uint16_t* p, int64_t count) { return left_first(p, count); }
  [[gnu::always_inline]] static void add(Vector<float>& sum, __m512i x, __m512i y) {
    sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
  }
#else
  [[gnu::always_inline]] static EvenOdd left(const uint16_t* p) { return load_split(p); }
  [[gnu::always_inline]] static EvenOdd left_first(const uint16_t* p, int64_t count) {
    return load_split_first(p, count);
  }
#endif
};

/// Where a group's units are in the tiles: unit u of the group's columns is unit u % unroll of its panel.
template <typename T>
struct UnitPlaces {
  T* first;  ///< the group's tile of the first panel
  int64_t unroll, c_step;

  [[gnu::always_inline]] T* at(int64_t unit) const {
    return first + unit / unroll * c_step + unit % unroll * Simd<T>::kUnitLanes;
  }
};

/// Calls body(first, count) with blocks of nearly the same number of rows, `Most` or fewer.
template <int Most, typename Body>
[[gnu::always_inline]] inline void for_rows(int64_t rows, const Body& body) {
  int64_t first = 0;
  for (int64_t block = ceil_div(rows, Most); block > 0; --block) {
    const int64_t count = ceil_div(rows - first, block);
    body(first, count);
    first += count;
  }
}

/// The arguments of a product of `a`'s rows with weights that are not packed.
template <typename Kind>
struct UnpackedArgs {
  int64_t rows;
  const typename Kind::Left* a;
  int64_t lda;
  const typename Kind::Right* weights;  ///< the first of the current panels
  int64_t columns;                      ///< the weights' columns in a group of `units` units
  int64_t units;
  typename Kind::Sum* c;
  const ProductLayout& layout;

  int64_t ldc() const { return layout.groups * layout.unroll * Simd<typename Kind::Sum>::kUnitLanes; }
  UnitPlaces<typename Kind::Sum> places(int64_t group) const {
    return {c + group * layout.unroll * Simd<typename Kind::Sum>::kUnitLanes, layout.unroll, rows * ldc()};
  }
};

}  // namespace
}  // namespace weft::runtime
