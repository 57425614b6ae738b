#pragma once

#include "runtime/simd/first.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

/// An f16 as it lies in memory. (A plain uint16_t is a bf16 in these headers.) Kernels compute with its value as f32.
struct F16 {
  uint16_t bits;
};

using F16Lanes __attribute__((vector_size(kVectorBytes / 2))) = uint16_t;

#if defined(__F16C__)
[[gnu::always_inline]] inline Vector<float> floats_of(F16Lanes halves) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(reinterpret_cast<__m256i>(halves));
#else
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
#endif
}

/// Rounds to the nearest f16, ties to even.
[[gnu::always_inline]] inline void store(F16* p, Vector<float> x) {
#if defined(__AVX512F__)
  const __m256i halves = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
#else
  const __m128i halves = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
#endif
  __builtin_memcpy(p, &halves, sizeof(halves));
}
#else
// The arithmetic of from_f16 and to_f16 in codegen/half.cpp: the same bits, NaNs included.

using WordLanes __attribute__((vector_size(kVectorBytes))) = uint32_t;

[[gnu::always_inline]] inline Vector<float> floats_of(F16Lanes halves) {
  constexpr uint32_t kBias = 112u << 23;  // between the exponents of f32 and f16
  const WordLanes bits = __builtin_convertvector(halves, WordLanes), magnitude = bits & 0x7fff;
  const WordLanes shifted = magnitude << 13;
  const WordLanes quiet = magnitude > 0x7c00 ? WordLanes{} + 0x400000 : WordLanes{};
  // Denormals are multiples of 2^-24: the last bits of numbers from 0.5 on.
  const WordLanes small = reinterpret_cast<WordLanes>(reinterpret_cast<Vector<float> >(magnitude + 0x3f000000) - 0.5F);
  WordLanes result = magnitude < 0x400 ? small : shifted + kBias;
  result = magnitude >= 0x7c00 ? (shifted + 2 * kBias) | quiet : result;
  return reinterpret_cast<Vector<float> >(result | (bits & 0x8000) << 16);
}

[[gnu::always_inline]] inline void store(F16* p, Vector<float> x) {
  constexpr uint32_t kBias = 112u << 23;
  const auto bits = reinterpret_cast<WordLanes>(x);
  const WordLanes magnitude = bits & 0x7fffffff, odd = magnitude >> 13 & 1;
  const WordLanes nan = (magnitude >> 13 & 0x3ff) | 0x7e00;
  // Below the smallest normal number: multiples of 2^-24, which the addition rounds to.
  const WordLanes small = reinterpret_cast<WordLanes>(reinterpret_cast<Vector<float> >(magnitude) + 0.5F) - 0x3f000000;
  WordLanes result = magnitude < 0x38800000 ? small : (magnitude + odd + 0xfff - kBias) >> 13;
  result = magnitude >= 0x477ff000 ? WordLanes{} + 0x7c00 : result;
  result = (magnitude > 0x7f800000 ? nan : result) | (bits >> 16 & 0x8000);
  const F16Lanes halves = __builtin_convertvector(result, F16Lanes);
  __builtin_memcpy(p, &halves, sizeof(halves));
}
#endif

[[gnu::always_inline]] inline Vector<float> load(const F16* p) {
  F16Lanes halves;
  __builtin_memcpy(&halves, p, sizeof(halves));
  return floats_of(halves);
}

/// The first `count` lanes from p, zeros in the others. The memory of the others is not touched.
[[gnu::always_inline]] inline Vector<float> load_first(const F16* p, int64_t count) {
  return floats_of(first_of<F16Lanes>(p, count));
}

// One element, in the type that kernels compute in.

template <typename T>
[[gnu::always_inline]] inline T value_of(T x) {
  return x;
}
[[gnu::always_inline]] inline float value_of(F16 x) { return load_first(&x, 1)[0]; }

}  // namespace
}  // namespace weft::runtime
