#pragma once

#include <vector>

#include "base/dtype.h"
#include "verify/layer.h"

namespace weft::verify {

/// How an implementation rounds: results of operations to `unit`, sums inside a product to `sum_unit`. Half precisions
/// sum in float32, as every framework does.
struct Precision {
  double unit;      // half the distance from 1 to the next number
  double sum_unit;  // the same of the accumulators
  double floor;     // the rounding error of numbers that are too small for a full mantissa
  double largest;   // numbers above it overflow

  /// `dtype` is f16, bf16, f32 or f64.
  static Precision of(DType dtype);
};

/// Rounds to nearest, ties to even: to a number of so many bits, the last of which is at least 2^smallest; to a dtype.
double round_to_bits(double value, int bits, int smallest = -133);
double round_to(double value, DType dtype);

/// Numbers computed in float64. Each has a bound of its error in another implementation, which computes it in a given
/// precision and in any order. A running error analysis: Higham, Accuracy and Stability of Numerical Algorithms, 2nd
/// ed., sections 3.1 and 3.3; every bound holds for any order of summation, with and without fused multiply-adds.
/// Where they aren't `bounded` they are numbers alone, and so is all that is computed of them.
struct Values {
  std::vector<double> value;
  std::vector<double> error;  // empty if not `bounded`
  bool bounded = true;

  Values() = default;
  explicit Values(int64_t size, bool with_bounds = true)
      : value(size), error(with_bounds ? size : 0), bounded(with_bounds) {}
  int64_t size() const { return static_cast<int64_t>(value.size()); }
};

/// Products before they are rounded to one number each: sums of terms.
struct Sums {
  std::vector<double> value;
  std::vector<double> magnitude;  // the sum of the terms' magnitudes; empty if not `bounded`
  std::vector<double> error;      // the sum of the bounds of the terms' errors
  bool bounded = true;

  int64_t size() const { return static_cast<int64_t>(value.size()); }
};

/// Multiplies rows [first, first + count) of `matrix` by `x`.
Sums product(const Matrix& matrix, int64_t first, int64_t count, const Values& x);

/// The first function adds the elements [first, first + size) of a vector, or nothing if the vector is empty; the
/// second adds other sums.
void add(Sums& sums, const std::vector<double>& vector, int64_t first);
void add(Sums& sums, const Sums& other, int64_t first = 0);

/// The sums as numbers, each of `terms` terms with rounding between them.
Values rounded(const Sums& sums, int64_t terms, const Precision& precision);

/// (x - mean) / sqrt(variance + eps) * gain over all of x, bounded for a variance of one pass and of two; `gain` from
/// `first`.
Sums normalised(const Values& x, double eps, const std::vector<double>& gain, int64_t first,
                const Precision& precision);

/// `activation` of x after it is clamped to [-clip, clip].
Values activated(const Activation& activation, double clip, const Values& x, const Precision& precision);

/// The `error` of numbers as large as `magnitude` after `operations` more roundings to the precision.
double with_rounding(double error, double operations, double magnitude, const Precision& precision);

}  // namespace weft::verify
