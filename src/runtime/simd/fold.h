#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

/// Rows, or vectors of one row, in a partial result, which is then folded into the result: bounds the rounding error of
/// long sums.
constexpr int64_t kFoldRows = 256;
/// Columns folded at a time: their results stay in the first-level cache.
constexpr int64_t kFoldColumns = 512;

template <typename T>
struct FoldVector {
  using Type __attribute__((vector_size(kVectorBytes))) = T;
  using Unaligned __attribute__((vector_size(kVectorBytes), aligned(sizeof(T)), may_alias)) = T;
  static constexpr int64_t kLanes = kVectorBytes / int64_t{sizeof(T)};
};

/// Folds integers as unsigned integers, which wrap.
template <typename T>
struct FoldSum {
  static constexpr T kNeutral = T(0);
  template <typename V>
  [[gnu::always_inline]] static V join(V total, V x) {
    return total + x;
  }
};

template <typename T>
struct Lowest;
template <>
struct Lowest<float> {
  static constexpr float kValue = -__builtin_inff();
};
template <>
struct Lowest<double> {
  static constexpr double kValue = -__builtin_inf();
};
template <>
struct Lowest<int32_t> {
  static constexpr int32_t kValue = INT32_MIN;
};
template <>
struct Lowest<int64_t> {
  static constexpr int64_t kValue = INT64_MIN;
};

/// A NaN, once met, stays: nothing compares greater.
template <typename T>
struct FoldMax {
  static constexpr T kNeutral = Lowest<T>::kValue;
  template <typename V>
  [[gnu::always_inline]] static V join(V total, V x) {
    return ((x > total) | (x != x)) ? x : total;
  }
};

template <typename T>
[[gnu::always_inline]] inline typename FoldVector<T>::Type load_fold(const T* p) {
  return *reinterpret_cast<const typename FoldVector<T>::Unaligned*>(p);
}

template <typename T>
[[gnu::always_inline]] inline void store_fold(T* p, typename FoldVector<T>::Type v) {
  *reinterpret_cast<typename FoldVector<T>::Unaligned*>(p) = v;
}

/// `count` elements of one row.
template <typename T, template <typename> typename Fold>
T fold_row(const T* x, int64_t count) {
  using V = typename FoldVector<T>::Type;
  constexpr int64_t kLanes = FoldVector<T>::kLanes;
  constexpr int kChains = 4;
  T total = Fold<T>::kNeutral;
  int64_t i = 0;
  while (i + kChains * kLanes <= count) {
    V chain[kChains];
#pragma GCC unroll 4
    for (int j = 0; j < kChains; ++j) chain[j] = load_fold(x + i + j * kLanes);
    int64_t n = 1;
    for (i += kChains * kLanes; n < kFoldRows && i + kChains * kLanes <= count; ++n, i += kChains * kLanes) {
#pragma GCC unroll 4
      for (int j = 0; j < kChains; ++j) chain[j] = Fold<T>::join(chain[j], load_fold(x + i + j * kLanes));
    }
    T lanes[kLanes];
    store_fold(lanes, Fold<T>::join(Fold<T>::join(chain[0], chain[1]), Fold<T>::join(chain[2], chain[3])));
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      for (int64_t j = 0; j < half; ++j) lanes[j] = Fold<T>::join(lanes[j], lanes[j + half]);
    total = Fold<T>::join(total, lanes[0]);
  }
  for (; i < count; ++i) total = Fold<T>::join(total, x[i]);
  return total;
}

/// partial[c] folded with R rows, one after another.
template <typename T, template <typename> typename Fold, int R>
[[gnu::always_inline]] inline void fold_rows(const T* x, int64_t ld, int64_t columns, T* partial) {
  constexpr int64_t kLanes = FoldVector<T>::kLanes;
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    auto total = load_fold(partial + c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) total = Fold<T>::join(total, load_fold(x + r * ld + c));
    store_fold(partial + c, total);
  }
  for (; c < columns; ++c)
    for (int r = 0; r < R; ++r) partial[c] = Fold<T>::join(partial[c], x[r * ld + c]);
}

template <typename T, template <typename> typename Fold>
void fold(const void* data, int64_t rows, int64_t ld, void* out_data, int64_t columns) {
  const T* x = static_cast<const T*>(data);
  T* out = static_cast<T*>(out_data);
  if (columns == 1 && ld == 1) {
    *out = Fold<T>::join(*out, fold_row<T, Fold>(x, rows));
    return;
  }
  alignas(64) T partial[kFoldColumns];
  for (int64_t c = 0; c < columns; c += kFoldColumns) {
    const int64_t width = smaller(kFoldColumns, columns - c);
    for (int64_t r0 = 0; r0 < rows; r0 += kFoldRows) {
      const T* from = x + r0 * ld + c;
      const int64_t count = smaller(kFoldRows, rows - r0);
      for (int64_t j = 0; j < width; ++j) partial[j] = Fold<T>::kNeutral;
      int64_t r = 0;
      for (; r + 8 <= count; r += 8) fold_rows<T, Fold, 8>(from + r * ld, ld, width, partial);
      for (; r < count; ++r) fold_rows<T, Fold, 1>(from + r * ld, ld, width, partial);
      for (int64_t j = 0; j < width; ++j) out[c + j] = Fold<T>::join(out[c + j], partial[j]);
    }
  }
}

constexpr FoldKernels fold_table() {
  return {.sum = {fold<float, FoldSum>, fold<double, FoldSum>, fold<uint32_t, FoldSum>, fold<uint64_t, FoldSum>},
          .max = {fold<float, FoldMax>, fold<double, FoldMax>, fold<int32_t, FoldMax>, fold<int64_t, FoldMax>}};
}

}  // namespace
}  // namespace weft::runtime
