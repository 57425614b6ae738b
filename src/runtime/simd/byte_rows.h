#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/first.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

// Products on 8-bit weights as they lie, [N, K] row-major (ByteRowsKernel in kernels.h). Processors multiply bytes with
// bytes, or 16-bit numbers in pairs, and add in 32 bits. So the left operand is written in digits to base 2^8 or 2^16,
// each digit's product is summed exactly, and the sums are put together at the end:
//
//     x = scale * (d0 + 2^8 d1 + 2^16 d2)     sum over k of x w = scale * (S0 + 2^8 S1 + 2^16 S2)
//
// f32 is first rounded to a fixed point of 24 bits below the largest element of its block of kBlock elements, where a
// sum of f32 products rounds as much. i32 has as many digits as its largest element needs: sums are exact.

constexpr int kBlock = 1024;    ///< elements of the left operand with one scale; their sums fit 32 bits
constexpr int kLeftRows = 4;    ///< rows of the left operand whose digits are made at once
constexpr int kRowsAtOnce = 4;  ///< rows of weights

/// How many digits, of two rows of the left operand together, have sums that fit the registers.
constexpr int kMostDigitsAtOnce = kVectorBytes == 64 ? 6 : 2;

template <typename T>
constexpr bool kIsReal = T(0.5) != T(0);

constexpr int kLanes32 = kVectorBytes / 4;
using Sums __attribute__((vector_size(kVectorBytes))) = int32_t;

#if defined(__AVX512VNNI__)
/// Bytes by bytes. The instruction takes one operand unsigned: the weights plus 128, which `start` compensates for.
struct DigitKind {
  using Digit = int8_t;
  using Weights = __m512i;
  static constexpr int kBits = 8, kStep = 64, kRealDigits = 3, kMostDigits = 4;
  static constexpr float kScale = 8300000.0F;  ///< less than 127 (1 + 2^8 + 2^16), with room for rounding

  [[gnu::always_inline]] static Weights weights(const int8_t* w) {
    return _mm512_xor_si512(_mm512_loadu_si512(w), _mm512_set1_epi8(-128));
  }
  [[gnu::always_inline]] static Weights first_weights(const int8_t* w, int64_t count) {
    return _mm512_xor_si512(_mm512_maskz_loadu_epi8((__mmask64{1} << count) - 1, w), _mm512_set1_epi8(-128));
  }
  [[gnu::always_inline]] static Sums add(Sums sums, Weights weights, __m512i digits) {
    return reinterpret_cast<Sums>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums), weights, digits));
  }
  [[gnu::always_inline]] static __m512i digits(const Digit* d) { return _mm512_load_si512(d); }
  static Sums start(const Digit* digits, int64_t steps) {
    Sums sums{};
    for (int64_t i = 0; i < steps; ++i) sums = add(sums, _mm512_set1_epi8(-128), DigitKind::digits(digits + i * kStep));
    return -sums;
  }
};
#else
/// 16-bit numbers in pairs.
struct DigitKind {
  using Digit = int16_t;
  static constexpr int kBits = 16, kStep = kVectorBytes / 2, kRealDigits = 2, kMostDigits = 2;
  static constexpr float kScale = 1.0e9F;  ///< less than (2^15 - 1) 2^16, with room for rounding
  using Weights __attribute__((vector_size(kVectorBytes))) = int16_t;
  using Bytes __attribute__((vector_size(kStep), aligned(1), may_alias)) = int8_t;

  [[gnu::always_inline]] static Weights weights(const int8_t* w) {
    return __builtin_convertvector(*reinterpret_cast<const Bytes*>(w), Weights);
  }
  [[gnu::always_inline]] static Weights first_weights(const int8_t* w, int64_t count) {
    using AlignedBytes __attribute__((vector_size(kStep))) = int8_t;
    return __builtin_convertvector(first_of<AlignedBytes>(w, count), Weights);
  }
  [[gnu::always_inline]] static Weights digits(const Digit* d) { return *reinterpret_cast<const Weights*>(d); }
  [[gnu::always_inline]] static Sums add(Sums sums, Weights weights, Weights digits) {
#if defined(__AVX512BW__)
    return sums + reinterpret_cast<Sums>(
                      _mm512_madd_epi16(reinterpret_cast<__m512i>(weights), reinterpret_cast<__m512i>(digits)));
#elif defined(__AVX2__)
    return sums + reinterpret_cast<Sums>(
                      _mm256_madd_epi16(reinterpret_cast<__m256i>(weights), reinterpret_cast<__m256i>(digits)));
#elif defined(__SSE2__)
    return sums + reinterpret_cast<Sums>(
                      _mm_madd_epi16(reinterpret_cast<__m128i>(weights), reinterpret_cast<__m128i>(digits)));
#else
    for (int i = 0; i < kLanes32; ++i)
      sums[i] += weights[2 * i] * digits[2 * i] + weights[2 * i + 1] * digits[2 * i + 1];
    return sums;
#endif
  }
  static Sums start(const Digit*, int64_t) { return Sums{}; }
};
#endif

/// A block of a row of the left operand.
struct LeftDigits {
  alignas(64) DigitKind::Digit digit[DigitKind::kMostDigits][kBlock];
  Sums start[DigitKind::kMostDigits];
  float scale;  ///< the scale of f32
  int count;    ///< the number of digits; 0: the block has numbers that no fixed point holds, or zeros only
  bool is_zero;
};

/// Takes the lowest digit off x: it is between -2^(kBits-1) and 2^(kBits-1) - 1.
[[gnu::always_inline]] inline DigitKind::Digit take_digit(int32_t& x) {
  const auto digit = static_cast<DigitKind::Digit>(x);
  x = static_cast<int32_t>(static_cast<uint32_t>(x) - static_cast<uint32_t>(int32_t{digit})) >> DigitKind::kBits;
  return digit;
}

template <int Count>
[[gnu::always_inline]] inline void write_digits(int32_t x, int64_t i, LeftDigits& left) {
#pragma GCC unroll 4
  for (int d = 0; d < Count; ++d) left.digit[d][i] = take_digit(x);
}

/// Fills the digits with zeros up to a whole step, and sets the sums' start.
inline void finish_digits(int64_t k, LeftDigits& left) {
  const int64_t steps = ceil_div(k, DigitKind::kStep);
  for (int d = 0; d < left.count; ++d) {
    for (int64_t i = k; i < steps * DigitKind::kStep; ++i) left.digit[d][i] = 0;
    left.start[d] = DigitKind::start(left.digit[d], steps);
  }
}

inline void make_digits(const float* a, int64_t k, LeftDigits& left) {
  int32_t largest = 0;  // as the bits of |x|, which order as numbers do; NaNs are larger than infinity
  for (int64_t i = 0; i < k; ++i) {
    int32_t bits;
    __builtin_memcpy(&bits, a + i, sizeof(bits));
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  float most;
  __builtin_memcpy(&most, &largest, sizeof(most));
  left.is_zero = largest == 0;
  const bool fits = largest < 0x7f800000 && most > 1e-30F;
  left.count = fits ? DigitKind::kRealDigits : 0;
  if (!fits) return;
  left.scale = most / DigitKind::kScale;
  const float factor = DigitKind::kScale / most;
  for (int64_t i = 0; i < k; ++i) {
    const float x = a[i] * factor;
    write_digits<DigitKind::kRealDigits>(static_cast<int32_t>(x + (x < 0 ? -0.5F : 0.5F)), i, left);
  }
  finish_digits(k, left);
}

inline void make_digits(const int32_t* a, int64_t k, LeftDigits& left) {
  int32_t least = 0, most = 0;
  for (int64_t i = 0; i < k; ++i) {
    least = a[i] < least ? a[i] : least;
    most = a[i] > most ? a[i] : most;
  }
  left.is_zero = least == 0 && most == 0;
  constexpr int32_t kOne = (1 << (DigitKind::kBits - 1)) - 1;
  constexpr int32_t kTwo = DigitKind::kMostDigits == 2 ? 0x7fffffff : kOne * ((1 << (DigitKind::kBits % 32)) + 1);
  left.count = least >= -kOne && most <= kOne ? 1 : least >= -kTwo && most <= kTwo ? 2 : DigitKind::kMostDigits;
  for (int64_t i = 0; i < k; ++i) {
    if (left.count == 1)
      write_digits<1>(a[i], i, left);
    else if (left.count == 2)
      write_digits<2>(a[i], i, left);
    else
      write_digits<DigitKind::kMostDigits>(a[i], i, left);
  }
  finish_digits(k, left);
}

/// Puts the sums of each digit together as one vector of numbers.
template <int D>
[[gnu::always_inline]] inline Vector<float> put_together(const Sums (&sums)[D], const float*) {
  Vector<float> x = __builtin_convertvector(sums[D - 1], Vector<float>);
#pragma GCC unroll 4
  for (int d = D - 2; d >= 0; --d)
    x = x * static_cast<float>(1 << DigitKind::kBits) + __builtin_convertvector(sums[d], Vector<float>);
  return x;
}

template <int D>
[[gnu::always_inline]] inline Sums put_together(const Sums (&sums)[D], const int32_t*) {
  using Unsigned __attribute__((vector_size(kVectorBytes))) = uint32_t;
  auto x = reinterpret_cast<Unsigned>(sums[D - 1]);
#pragma GCC unroll 4
  for (int d = D - 2; d >= 0; --d) x = (x << DigitKind::kBits) + reinterpret_cast<Unsigned>(sums[d]);
  return reinterpret_cast<Sums>(x);
}

/// The sum over the lanes of each of four vectors.
template <typename T, typename V>
[[gnu::always_inline]] inline void sum_lanes(const V (&x)[kRowsAtOnce], T (&out)[kRowsAtOnce]) {
#if defined(__AVX512F__)
  // Pairs of vectors, each halved, side by side; then pairs of these; then the quarters are added.
  auto halves = [](V a, V b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
           __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  };
  const V ab = halves(x[0], x[1]), cd = halves(x[2], x[3]);
  V all = __builtin_shufflevector(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
          __builtin_shufflevector(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  all += __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  all += __builtin_shufflevector(all, all, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  __builtin_memcpy(out, &all, sizeof(out));
#else
#pragma GCC unroll 4
  for (int i = 0; i < kRowsAtOnce; ++i) {
    T lanes[kLanes32];
    __builtin_memcpy(lanes, &x[i], sizeof(lanes));
    for (int half = kLanes32 / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    out[i] = lanes[0];
  }
#endif
}

/// x * scale + onto. Written so that the compiler fuses the two operations everywhere or nowhere: the bits must not
/// depend on the number of rows taken at once.
[[gnu::always_inline]] inline float scaled_onto(float onto, float x, float scale) {
#if defined(__FMA__)
  return __builtin_fmaf(x, scale, onto);
#else
  return onto + x * scale;
#endif
}

/// One block's part of the product of `rows` rows of weights, 1..kRowsAtOnce, with R rows of the left operand that have
/// D digits.
template <typename T, int D, int R>
[[gnu::always_inline]] inline void byte_block(const LeftDigits* left, int64_t k, const int8_t* w, int64_t ldw,
                                              int64_t rows, T* c, int64_t ldc, bool accumulate) {
  constexpr int kStep = DigitKind::kStep;
  const int8_t* row[kRowsAtOnce];
#pragma GCC unroll 4
  for (int i = 0; i < kRowsAtOnce; ++i) row[i] = w + (i < rows ? i : rows - 1) * ldw;
  Sums sums[R][kRowsAtOnce][D];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kRowsAtOnce; ++i)
#pragma GCC unroll 4
      for (int d = 0; d < D; ++d) sums[r][i][d] = left[r].start[d];
  auto step = [&](int64_t at, auto&& weights) __attribute__((always_inline)) {
    decltype(DigitKind::digits(nullptr)) digits[R][D];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int d = 0; d < D; ++d) digits[r][d] = DigitKind::digits(left[r].digit[d] + at);
#pragma GCC unroll 4
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const DigitKind::Weights x = weights(row[i] + at);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int d = 0; d < D; ++d) sums[r][i][d] = DigitKind::add(sums[r][i][d], x, digits[r][d]);
    }
  };
  int64_t at = 0;
  for (; at + kStep <= k; at += kStep) step(at, [](const int8_t* p) { return DigitKind::weights(p); });
  if (at < k) step(at, [&](const int8_t* p) { return DigitKind::first_weights(p, k - at); });
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    decltype(put_together<D>(sums[r][0], static_cast<const T*>(nullptr))) whole[kRowsAtOnce];
#pragma GCC unroll 4
    for (int i = 0; i < kRowsAtOnce; ++i) whole[i] = put_together<D>(sums[r][i], static_cast<const T*>(nullptr));
    T out[kRowsAtOnce];
    sum_lanes<T>(whole, out);
    for (int64_t i = 0; i < rows; ++i) {
      T& to = c[r * ldc + i];
      if constexpr (kIsReal<T>)
        to = accumulate ? scaled_onto(to, out[i], left[r].scale) : out[i] * left[r].scale;
      else
        to = accumulate ? to + out[i] : out[i];
    }
  }
}

/// The same for any number of rows of weights, whose results lie side by side.
template <typename T, int D, int R>
[[gnu::noinline]] void rows_by_digits(const LeftDigits* left, int64_t k, const int8_t* w, int64_t ldw, int64_t rows,
                                      T* c, int64_t ldc, bool accumulate) {
  for (int64_t i = 0; i < rows; i += kRowsAtOnce)
    byte_block<T, D, R>(left, k, w + i * ldw, ldw, smaller(kRowsAtOnce, rows - i), c + i, ldc, accumulate);
}

/// The product of a block without digits.
template <typename T>
[[gnu::noinline]] void plain_rows(const LeftDigits& left, int64_t k, const T* a, const int8_t* w, int64_t ldw,
                                  int64_t rows, T* c, bool accumulate) {
  for (int64_t i = 0; i < rows; ++i) {
    T sum = T(0);
    for (int64_t j = 0; j < k && !left.is_zero; ++j) sum += a[j] * static_cast<T>(w[i * ldw + j]);
    c[i] = accumulate ? c[i] + sum : sum;
  }
}

template <typename T, int R>
void rows_of_digits(int digits, const LeftDigits* left, int64_t k, const int8_t* w, int64_t ldw, int64_t rows, T* c,
                    int64_t ldc, bool accumulate) {
  if constexpr (kIsReal<T>)
    return rows_by_digits<T, DigitKind::kRealDigits, R>(left, k, w, ldw, rows, c, ldc, accumulate);
  if (digits == 1) return rows_by_digits<T, 1, R>(left, k, w, ldw, rows, c, ldc, accumulate);
  if (digits == 2) return rows_by_digits<T, 2, R>(left, k, w, ldw, rows, c, ldc, accumulate);
  if constexpr (R == 1) rows_by_digits<T, DigitKind::kMostDigits, R>(left, k, w, ldw, rows, c, ldc, accumulate);
}

/// The arguments of ByteRowsKernel; rows of the weights are `ldw` bytes apart.
struct ByteRowsArgs {
  int64_t k;
  const void* a;
  int64_t lda;
  const int8_t* weights;
  int64_t ldw, n, groups, width, panel, count;
  void* c;
  int64_t c_step;

  int64_t ldc() const { return groups * width; }
};

/// All panels for the rows whose digits are in `left`; their block begins at step `k0` of k.
template <typename T>
void rows_of_panels(const ByteRowsArgs& args, const LeftDigits* left, int64_t r0, int64_t rows, int64_t k0, int64_t k) {
  const T* a = static_cast<const T*>(args.a) + r0 * args.lda + k0;
  for (int64_t j = 0; j < args.count; ++j)
    for (int64_t group = 0; group < args.groups; ++group) {
      const int64_t first = (args.panel + j) * args.width, weights = smaller(args.width, args.n - first);
      const int8_t* w = args.weights + (group * args.n + first) * args.ldw + k0;
      T* c = static_cast<T*>(args.c) + j * args.c_step + r0 * args.ldc() + group * args.width;
      for (int64_t r = 0; r < rows;) {
        const int digits = left[r].count;
        T* to = c + r * args.ldc();
        const bool two = r + 1 < rows && left[r + 1].count == digits && 2 * digits <= kMostDigitsAtOnce;
        if (digits == 0)
          plain_rows<T>(left[r], k, a + r * args.lda, w, args.ldw, weights, to, k0 > 0);
        else if (two)
          rows_of_digits<T, 2>(digits, left + r, k, w, args.ldw, weights, to, args.ldc(), k0 > 0);
        else
          rows_of_digits<T, 1>(digits, left + r, k, w, args.ldw, weights, to, args.ldc(), k0 > 0);
        r += two && digits > 0 ? 2 : 1;
      }
    }
}

template <typename T>
void byte_rows_of(int64_t rows, const ByteRowsArgs& args) {
  LeftDigits left[kLeftRows];
  for (int64_t r0 = 0; r0 < rows; r0 += kLeftRows) {
    const int64_t now = smaller(kLeftRows, rows - r0);
    for (int64_t k0 = 0; k0 == 0 || k0 < args.k; k0 += kBlock) {
      const int64_t block = smaller(kBlock, args.k - k0);
      const T* first = static_cast<const T*>(args.a) + r0 * args.lda + k0;
      for (int64_t r = 0; r < now; ++r) make_digits(first + r * args.lda, block, left[r]);
      rows_of_panels<T>(args, left, r0, now, k0, block);
    }
  }
}

template <typename T>
void byte_rows(int64_t rows, int64_t k, const void* a, int64_t lda, const void* weights, int64_t n, int64_t groups,
               int64_t width, int64_t panel, int64_t count, void* c, int64_t c_step) {
  byte_rows_of<T>(rows, {k, a, lda, static_cast<const int8_t*>(weights), k, n, groups, width, panel, count, c, c_step});
}

constexpr ByteRowsKernels byte_rows_table() { return {.f32 = byte_rows<float>, .i32 = byte_rows<int32_t>}; }

}  // namespace
}  // namespace weft::runtime
