#pragma once

#include <vector>

#include "base/dtype.h"
#include "verify/layer.h"

namespace weft::verify {

/// How an implementation rounds: results of operations to `unit`, sums inside a product to `sum_unit`. Half precisions
/// sum in float32, as every framework does.
struct Precision {
  double unit;      // half the distance of 1 and the next number
  double sum_unit;  // likewise, of the accumulators
  double floor;     // the rounding error of numbers that are too small for a full mantissa
  double largest;   // above it numbers overflow

  /// `dtype` is f16, bf16, f32 or f64.
  static Precision of(DType dtype);
};

/// To nearest, ties to even: a number of so many bits whose last is at least 2^smallest; a number of a dtype.
double round_to_bits(double value, int bits, int smallest = -133);
double round_to(double value, DType dtype);

/// Numbers computed in float64, each with a bound of the error of another implementation that computes the same in a
/// given precision and in any order. A running error analysis: Higham, Accuracy and Stability of Numerical Algorithms,
/// 2nd ed., sections 3.1 and 3.3; every bound holds for any order of summation, with and without fused multiply-adds.
struct Values {
  std::vector<double> value;
  std::vector<double> error;

  Values() = default;
  explicit Values(int64_t size) : value(size), error(size) {}
  int64_t size() const { return static_cast<int64_t>(value.size()); }
};

/// Products that are not yet rounded into one number: sums of terms.
struct Sums {
  std::vector<double> value;
  std::vector<double> magnitude;  // the sum of the terms' magnitudes
  std::vector<double> error;      // the sum of the bounds of the terms' errors

  int64_t size() const { return static_cast<int64_t>(value.size()); }
};

/// Rows [first, first + count) of `matrix` times `x`.
Sums product(const Matrix& matrix, int64_t first, int64_t count, const Values& x);

/// Adds the elements [first, first + size) of a vector, nothing when it is empty, or of other sums.
void add(Sums& sums, const std::vector<double>& vector, int64_t first);
void add(Sums& sums, const Sums& other, int64_t first = 0);

/// The sums as numbers, each of `terms` terms and rounded in between.
Values rounded(const Sums& sums, int64_t terms, const Precision& precision);

/// (x - mean) / sqrt(variance + eps) * gain over all of x, and the variance by one pass or by two; `gain` from `first`.
Sums normalised(const Values& x, double eps, const std::vector<double>& gain, int64_t first,
                const Precision& precision);

/// `activation` of what is clamped to [-clip, clip].
Values activated(const Activation& activation, double clip, const Values& x, const Precision& precision);

/// The error that rounding a result to the precision adds to `error`: `operations` roundings of numbers as large as
/// `magnitude`.
double with_rounding(double error, double operations, double magnitude, const Precision& precision);

}  // namespace weft::verify
