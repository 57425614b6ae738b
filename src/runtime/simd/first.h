#pragma once

#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

// Loads the last numbers of a row, of 8 or 16 bits and fewer than a vector. Copied one by one into a buffer, they would
// cost more than the product with them: the load of the buffer would have to wait until its narrower stores have left
// the core.

/// The `count` bytes at p, 0..8, as the low bytes of a number, by loads that overlap.
[[gnu::always_inline]] inline uint64_t first_bytes(const unsigned char* p, int64_t count) {
  if (count >= 4) {
    uint32_t low, high;
    __builtin_memcpy(&low, p, sizeof(low));
    __builtin_memcpy(&high, p + count - 4, sizeof(high));
    return low | uint64_t{high} << 8 * (count - 4);
  }
  if (count == 0) return 0;
  return p[0] | uint64_t{p[count / 2]} << 8 * (count / 2) | uint64_t{p[count - 1]} << 8 * (count - 1);
}

/// The first `count` numbers at p, 0 to as many as a V holds; zeros in the others, whose memory is not touched.
template <typename V, typename Element>
[[gnu::always_inline]] inline V first_of(const Element* p, int64_t count) {
  static_assert(sizeof(Element) <= 2);
#if defined(__AVX512F__)
  const uint64_t mask = (uint64_t{1} << count) - 1;
  if constexpr (sizeof(V) == 64) {
    static_assert(sizeof(Element) == 2);
    return reinterpret_cast<V>(_mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), p));
  } else if constexpr (sizeof(V) == 32) {
    if constexpr (sizeof(Element) == 1)
      return reinterpret_cast<V>(_mm256_maskz_loadu_epi8(static_cast<__mmask32>(mask), p));
    else
      return reinterpret_cast<V>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), p));
  } else {
    static_assert(sizeof(V) == 16 && sizeof(Element) == 1);
    return reinterpret_cast<V>(_mm_maskz_loadu_epi8(static_cast<__mmask16>(mask), p));
  }
#else
  const auto* bytes = reinterpret_cast<const unsigned char*>(p);
  const int64_t size = count * static_cast<int64_t>(sizeof(Element));
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32) {
    static_assert(sizeof(Element) == 2);
    const __m256i pair = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                  pairs = _mm256_set1_epi32(static_cast<int>(count / 2));
    const __m256i whole = _mm256_maskload_epi32(reinterpret_cast<const int*>(p), _mm256_cmpgt_epi32(pairs, pair));
    if (count % 2 == 0) return reinterpret_cast<V>(whole);
    uint16_t odd;
    __builtin_memcpy(&odd, bytes + size - 2, sizeof(odd));
    const __m256i last = _mm256_set1_epi32(odd);
    return reinterpret_cast<V>(_mm256_or_si256(whole, _mm256_and_si256(_mm256_cmpeq_epi32(pairs, pair), last)));
  } else
#endif
  {
    static_assert(sizeof(V) <= 16);
    uint64_t words[2] = {};
    const int64_t whole = size > 8 ? 1 : 0;
    if (whole > 0) __builtin_memcpy(words, bytes, 8);
    words[whole] = first_bytes(bytes + 8 * whole, size - 8 * whole);
    V v;
    __builtin_memcpy(&v, words, sizeof(v));
    return v;
  }
#endif
}

}  // namespace
}  // namespace weft::runtime
