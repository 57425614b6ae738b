#include "decompose/fourier.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <numeric>
#include <tuple>

#include "base/fork.h"

namespace weft::decompose {
namespace {

constexpr int64_t kSmall = 64;       ///< transforms up to here are one product,
constexpr int64_t kMostPrime = 512;  ///< and those of a prime length up to here
constexpr int64_t kMost = 16384;     ///< longer ones are left to PyTorch

/// The largest divisor up to the root; 1 of a prime.
int64_t factor_of(int64_t n) {
  auto factor = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (n % factor != 0) --factor;
  return factor;
}

bool is_one_product(int64_t n) { return n <= kSmall || factor_of(n) == 1; }

enum class Kind { kMatrix, kTwiddlesRe, kTwiddlesIm, kWeights };

/// What a table is of: its kind and dtype, and the transform's numbers.
using Key = std::tuple<Kind, at::ScalarType, int64_t, double, double, bool, bool, int64_t, int64_t>;

/// Tables are made once and kept, so that each stays one tensor: to a record it comes from outside.
struct Tables {
  std::mutex mutex;
  std::map<Key, Tensor> made;
  Tables() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Tables& tables = *new Tables();

/// A table [rows, columns]. It is kept as [1, rows, columns], so that no dim of it is taken for that of steps. `fill`
/// gives the elements. No mode of the caller's sees how it is made.
template <typename Fill>
Tensor table(const Key& key, int64_t rows, int64_t columns, Fill fill) {
  const std::lock_guard lock(tables.mutex);
  Tensor& known = tables.made[key];
  if (!known.defined()) {
    known = at::detail::empty_cpu({1, rows, columns}, std::get<at::ScalarType>(key));
    const auto write = [&](auto* element) {
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column)
          *element++ = static_cast<std::remove_pointer_t<decltype(element)>>(fill(row, column));
    };
    if (known.scalar_type() == at::kDouble)
      write(known.mutable_data_ptr<double>());
    else
      write(known.mutable_data_ptr<float>());
  }
  return known.squeeze(0);
}

/// A part of exp(sign 2 pi i j k / n). The angle is computed from a whole number below n, so that no large product is
/// rounded, and multiples of a quarter turn are exact.
double root_of_one(int64_t n, double sign, int64_t j, int64_t k, bool is_imaginary) {
  const int64_t place = j * k % n;
  if (4 * place % n == 0) {
    constexpr double kQuarters[] = {1, 0, -1, 0};
    const int64_t quarter = 4 * place / n;
    return is_imaginary ? sign * kQuarters[(quarter + 3) % 4] : kQuarters[quarter];
  }
  const double angle = 2 * std::numbers::pi * static_cast<double>(place) / static_cast<double>(n);
  return is_imaginary ? sign * std::sin(angle) : std::cos(angle);
}

Key key_of(const Fourier& transform, Kind kind, at::ScalarType dtype) {
  const auto& [n, sign, scale, from_real, to_real, taken, given] = transform;
  return {kind, dtype, n, sign, scale, from_real, to_real, taken, given};
}

/// The matrix of a transform that is one product.
Tensor matrix_of(const Fourier& transform, at::ScalarType dtype) {
  const auto& [n, sign, scale, from_real, to_real, taken, given] = transform;
  return table(key_of(transform, Kind::kMatrix, dtype), from_real ? taken : 2 * taken, to_real ? given : 2 * given,
               [&](int64_t row, int64_t column) {
                 const bool of_imaginary = row >= taken, to_imaginary = column >= given;
                 const double part = root_of_one(n, sign, row % taken, column % given, of_imaginary != to_imaginary);
                 return scale * (of_imaginary && !to_imaginary ? -part : part);
               });
}

/// x [..., a, (re, im), b], element by element times exp(sign 2 pi i a b / n).
Tensor turned(const Tensor& x, int64_t n, double sign) {
  const int64_t rows = x.size(-3), columns = x.size(-1);
  const auto factors = [&](Kind kind) {
    const Key key{kind, x.scalar_type(), n, sign, 1, false, false, rows, columns};
    return table(key, rows, columns, [&](int64_t row, int64_t column) {
      return root_of_one(n, sign, row, column, kind == Kind::kTwiddlesIm);
    });
  };
  const Tensor re = x.select(-2, 0), im = x.select(-2, 1);
  const Tensor c = factors(Kind::kTwiddlesRe), s = factors(Kind::kTwiddlesIm);
  return at::stack({re * c - im * s, re * s + im * c}, -2);
}

/// The last three dims in another order.
Tensor reordered(const Tensor& x, const std::array<int64_t, 3>& order) {
  Dims dims(static_cast<size_t>(x.dim()));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  const int64_t first = x.dim() - 3;
  for (size_t i = 0; i < 3; ++i) dims[static_cast<size_t>(first) + i] = first + order[i];
  return x.permute(dims);
}

/// By j = j2 + n2 j1 and k = k1 + n1 k2: first the sums over j1, so that only as many k2 as are wanted follow.
Tensor by_all_inputs(const Fourier& transform, const Tensor& rows, int64_t n1, int64_t n2) {
  const auto& [n, sign, scale, from_real, to_real, taken, given] = transform;
  const int64_t wanted = (given + n1 - 1) / n1;
  Tensor x = of_length(rows.unflatten(-1, {from_real ? 1 : 2, taken}), n).unflatten(-1, {n1, n2});
  x = reordered(x, {2, 0, 1}).flatten(-2);  // [..., j2, part, j1]
  x = Fourier{n1, sign, scale, from_real, false, n1, n1}(x);
  x = turned(x.unflatten(-1, {2, n1}), n, sign);
  x = reordered(x, {2, 1, 0}).flatten(-2);  // [..., k1, part, j2]
  x = Fourier{n2, sign, 1, false, to_real, n2, wanted}(x).unflatten(-1, {to_real ? 1 : 2, wanted});
  x = reordered(x, {1, 2, 0}).flatten(-2);  // [..., part, k2, k1]
  return of_length(x, given).flatten(-2);
}

/// By j = j1 + n1 j2 and k = k2 + n2 k1: first the sums over j2, of which only as many are as the row has.
Tensor by_first_inputs(const Fourier& transform, const Tensor& rows, int64_t n1, int64_t n2) {
  const auto& [n, sign, scale, from_real, to_real, taken, given] = transform;
  const int64_t there = (taken + n1 - 1) / n1;
  Tensor x = of_length(rows.unflatten(-1, {from_real ? 1 : 2, taken}), there * n1).unflatten(-1, {there, n1});
  x = reordered(x, {2, 0, 1}).flatten(-2);  // [..., j1, part, j2]
  x = Fourier{n2, sign, 1, from_real, false, there, n2}(x);
  x = turned(x.unflatten(-1, {2, n2}), n, sign);
  x = reordered(x, {2, 1, 0}).flatten(-2);  // [..., k2, part, j1]
  x = Fourier{n1, sign, scale, false, to_real, n1, n1}(x).unflatten(-1, {to_real ? 1 : 2, n1});
  x = reordered(x, {1, 2, 0}).flatten(-2);  // [..., part, k1, k2]
  return of_length(x, given).flatten(-2);
}

}  // namespace

Tensor Fourier::operator()(const Tensor& rows) const {
  if (is_one_product(n)) return at::matmul(rows, matrix_of(*this, rows.scalar_type()));
  const int64_t n1 = factor_of(n), n2 = n / n1;
  return taken < n ? by_first_inputs(*this, rows, n1, n2) : by_all_inputs(*this, rows, n1, n2);
}

std::optional<int64_t> fourier_work(int64_t n) {
  if (n < 1 || n > kMost) return std::nullopt;
  if (is_one_product(n)) return n <= kMostPrime ? std::optional(4 * n * n) : std::nullopt;
  const int64_t n1 = factor_of(n), n2 = n / n1;
  const auto first = fourier_work(n1), second = fourier_work(n2);
  return first && second ? std::optional(n2 * *first + n1 * *second) : std::nullopt;
}

Tensor half_spectrum_weights(int64_t n, at::ScalarType dtype) {
  const int64_t half = n / 2 + 1;
  const Key key{Kind::kWeights, dtype, n, 1, 1, false, false, half, 0};
  return table(key, 1, 2 * half, [&](int64_t, int64_t column) {
    const bool is_own_conjugate = 2 * (column % half) % n == 0;
    if (is_own_conjugate) return column < half ? 1.0 : 0.0;
    return 2.0;
  });
}

}  // namespace weft::decompose
