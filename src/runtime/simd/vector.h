#pragma once

// The headers of this folder are only for the sources that are compiled once per instruction set (kernels_<isa>.cpp).
// Everything in them is in an unnamed namespace and uses no function or template of the standard library: the linker
// keeps one copy of such a function for the whole program, perhaps the one with instructions that this CPU lacks.

#include <cstdint>

#include "base/target.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft::runtime {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

/// A panel's unit (a "vector" in kernels.h) is of target::kUnit bytes for every ISA: this many registers.
constexpr int kRegistersPerUnit = target::kUnit / kVectorBytes;

template <typename T>
struct Simd;

template <>
struct Simd<float> {
  using Vector __attribute__((vector_size(kVectorBytes))) = float;
  using Unaligned __attribute__((vector_size(kVectorBytes), aligned(4), may_alias)) = float;
  static constexpr int kLanes = kVectorBytes / 4;
  static constexpr int kUnitLanes = target::lanes(DType::kF32);
};

template <>
struct Simd<double> {
  using Vector __attribute__((vector_size(kVectorBytes))) = double;
  using Unaligned __attribute__((vector_size(kVectorBytes), aligned(8), may_alias)) = double;
  static constexpr int kLanes = kVectorBytes / 8;
  static constexpr int kUnitLanes = target::lanes(DType::kF64);
};

template <typename T>
using Vector = typename Simd<T>::Vector;

/// Indices of lanes as template arguments, for shuffles.
template <int... Lane>
struct Lanes {
  static constexpr int kCount = sizeof...(Lane);
};

template <int Count, int... Lane>
struct FirstLanes : FirstLanes<Count - 1, Count - 1, Lane...> {};
template <int... Lane>
struct FirstLanes<0, Lane...> {
  using Type = Lanes<Lane...>;
};

/// 0, 1, ... of a vector.
template <typename T>
using AllLanes = typename FirstLanes<Simd<T>::kLanes>::Type;

template <typename T>
[[gnu::always_inline]] inline Vector<T> load(const T* p) {
  return *reinterpret_cast<const typename Simd<T>::Unaligned*>(p);
}

template <typename T>
[[gnu::always_inline]] inline void store(T* p, Vector<T> v) {
  *reinterpret_cast<typename Simd<T>::Unaligned*>(p) = v;
}

/// The first `count` lanes, 0..lanes, from p; zeros in the others, whose memory is not touched.
[[gnu::always_inline]] inline Vector<float> load_first(const float* p, int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), p);
#elif defined(__AVX2__)
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane));
#else
  Vector<float> v{};
  for (int64_t i = 0; i < count; ++i) v[i] = p[i];
  return v;
#endif
}

[[gnu::always_inline]] inline Vector<double> load_first(const double* p, int64_t count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1U << count) - 1), p);
#elif defined(__AVX2__)
  const __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
  return _mm256_maskload_pd(p, _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), lane));
#else
  Vector<double> v{};
  for (int64_t i = 0; i < count; ++i) v[i] = p[i];
  return v;
#endif
}

/// x in every lane (x - 0 is x, also for -0, and the compiler drops it).
template <typename T>
[[gnu::always_inline]] inline Vector<T> splat(T x) {
  return x - Vector<T>{};
}

/// Keeps a loaded vector in a register. The compiler would load it again for every use, but a core does only two loads
/// a cycle.
template <typename V>
[[gnu::always_inline]] inline void keep_in_register(V& v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#endif
}

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace
}  // namespace weft::runtime
