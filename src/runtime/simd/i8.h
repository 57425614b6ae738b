#pragma once

#include "runtime/simd/first.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

/// A weight of 8 bits as it lies in memory. Kernels compute with its value as f32.
struct I8 {
  int8_t value;
};

template <typename T>
constexpr bool kIsByte = false;
template <>
constexpr bool kIsByte<I8> = true;

constexpr int kBytesOfLanes = kVectorBytes / 4;
using ByteLanes __attribute__((vector_size(kBytesOfLanes))) = int8_t;

[[gnu::always_inline]] inline Vector<float> floats_of(ByteLanes bytes) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(reinterpret_cast<__m128i>(bytes)));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(__m128i{reinterpret_cast<long long>(bytes)}));
#else
  using Integers __attribute__((vector_size(kVectorBytes))) = int32_t;
  return __builtin_convertvector(__builtin_convertvector(bytes, Integers), Vector<float>);
#endif
}

[[gnu::always_inline]] inline Vector<float> load(const I8* p) {
  ByteLanes bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return floats_of(bytes);
}

/// The first `count` lanes from p, zeros in the others. The memory of the others is not touched.
[[gnu::always_inline]] inline Vector<float> load_first(const I8* p, int64_t count) {
  return floats_of(first_of<ByteLanes>(p, count));
}

[[gnu::always_inline]] inline float value_of(I8 x) { return x.value; }

}  // namespace
}  // namespace weft::runtime
