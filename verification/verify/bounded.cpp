#include "verify/bounded.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace weft::verify {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kLanes = 8;

// How far frameworks' own exp, tanh and sigmoid may be off, in units of the larger of 1 and the result. Measured over
// [-20, 20] in float32: tanh of ONNX Runtime 5.5, of XLA 4.6; sigmoid 2.8 and 1.5.
constexpr double kActivationUnits = 12;

// The error of a sum of n terms in any order: Higham's gamma_n, with three more for the rounding of the terms' factors.
double gamma(int64_t terms, double unit) {
  const double product = static_cast<double>(terms + 3) * unit;
  return product < 1 ? product / (1 - product) : kInfinity;
}

Sums zero_sums(int64_t size, bool with_bounds) {
  const std::vector<double> zeros(size), bounds(with_bounds ? size : 0);
  return {zeros, bounds, bounds, with_bounds};
}

// The three sums of a dot product, computed together and in lanes, so that the compiler vectorises the loop.
struct Dot {
  double value = 0, magnitude = 0, error = 0;
};

Dot dot(const double* row, const Values& x, bool exact) {
  const int64_t size = x.size();
  std::array<double, kLanes> value{}, magnitude{}, error{};
  int64_t index = 0;
  for (; index + kLanes <= size; index += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) {
      const double term = row[index + lane] * x.value[index + lane];
      value[lane] += term;
      magnitude[lane] += std::abs(term);
    }
  Dot result;
  for (; index < size; ++index) {
    const double term = row[index] * x.value[index];
    result.value += term;
    result.magnitude += std::abs(term);
  }
  if (!exact) {
    for (index = 0; index + kLanes <= size; index += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) error[lane] += std::abs(row[index + lane]) * x.error[index + lane];
    for (; index < size; ++index) result.error += std::abs(row[index]) * x.error[index];
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    result.value += value[lane];
    result.magnitude += magnitude[lane];
    result.error += error[lane];
  }
  return result;
}

double plain_dot(const double* row, const Values& x) {
  const int64_t size = x.size();
  std::array<double, kLanes> value{};
  int64_t index = 0;
  for (; index + kLanes <= size; index += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) value[lane] += row[index + lane] * x.value[index + lane];
  double result = 0;
  for (; index < size; ++index) result += row[index] * x.value[index];
  for (const double lane : value) result += lane;
  return result;
}

// (x - mean) / sqrt(variance + eps) * gain, without bounds.
Sums plainly_normalised(const Values& x, double eps, const std::vector<double>& gain, int64_t first) {
  const double size = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const double value : x.value) mean += value / size;
  for (const double value : x.value) variance += (value - mean) * (value - mean) / size;
  const double scale = 1 / std::sqrt(variance + eps);
  Sums result = zero_sums(x.size(), false);
  for (int64_t index = 0; index < x.size(); ++index)
    result.value[index] = (x.value[index] - mean) * scale * (gain.empty() ? 1 : gain[first + index]);
  return result;
}

double clamped(double x, double clip) { return x < -clip ? -clip : x > clip ? clip : x; }

}  // namespace

double round_to_bits(double value, int bits, int smallest) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int last = std::max(exponent - bits, smallest);  // the exponent of the last bit
  return std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
}

double round_to(double value, DType dtype) {
  if (value == 0 || !std::isfinite(value) || dtype == DType::kF64) return value;
  if (dtype == DType::kF32) return static_cast<float>(value);
  const bool half = dtype == DType::kF16;
  const double result = round_to_bits(value, half ? 11 : 8, half ? -24 : -133);
  return std::abs(result) > Precision::of(dtype).largest ? std::copysign(kInfinity, value) : result;
}

Precision Precision::of(DType dtype) {
  const double single = std::ldexp(1.0, -24);
  switch (dtype) {
    case DType::kF16:
      return {std::ldexp(1.0, -11), single, std::ldexp(1.0, -24), 65504};
    case DType::kBF16:
      return {std::ldexp(1.0, -8), single, std::ldexp(1.0, -126), 3.38e38};
    case DType::kF32:
      return {single, single, std::ldexp(1.0, -126), std::numeric_limits<float>::max()};
    case DType::kF64:
      return {std::ldexp(1.0, -53), std::ldexp(1.0, -53), std::ldexp(1.0, -1022), std::numeric_limits<double>::max()};
    default:
      user_error("layers are compared in f16, bf16, f32 or f64, not in {}", name_of(dtype));
  }
}

double with_rounding(double error, double operations, double magnitude, const Precision& precision) {
  const double result = error + operations * (precision.unit * magnitude + precision.floor);
  return magnitude > precision.largest || std::isnan(result) ? kInfinity : result;
}

Sums product(const Matrix& matrix, int64_t first, int64_t count, const Values& x) {
  Sums sums = zero_sums(count, x.bounded);
  if (!x.bounded) {
    for (int64_t row = 0; row < count; ++row) sums.value[row] = plain_dot(matrix.row(first + row), x);
    return sums;
  }
  const bool exact = std::all_of(x.error.begin(), x.error.end(), [](double error) { return error == 0; });
  for (int64_t row = 0; row < count; ++row) {
    const Dot each = dot(matrix.row(first + row), x, exact);
    sums.value[row] = each.value;
    sums.magnitude[row] = each.magnitude;
    sums.error[row] = each.error;
  }
  return sums;
}

void add(Sums& sums, const std::vector<double>& vector, int64_t first) {
  if (vector.empty()) return;
  for (int64_t index = 0; index < sums.size(); ++index) sums.value[index] += vector[first + index];
  if (!sums.bounded) return;
  for (int64_t index = 0; index < sums.size(); ++index) sums.magnitude[index] += std::abs(vector[first + index]);
}

void add(Sums& sums, const Sums& other, int64_t first) {
  for (int64_t index = 0; index < sums.size(); ++index) sums.value[index] += other.value[first + index];
  if (!sums.bounded) return;
  for (int64_t index = 0; index < sums.size(); ++index) {
    sums.magnitude[index] += other.magnitude[first + index];
    sums.error[index] += other.error[first + index];
  }
}

Values rounded(const Sums& sums, int64_t terms, const Precision& precision) {
  Values result(sums.size(), sums.bounded);
  if (!sums.bounded) {
    result.value = sums.value;
    return result;
  }
  const double each = gamma(terms, precision.sum_unit);
  // A half precision rounds the partial results as well: the two products, and their sum. These can be as large as the
  // magnitude, but seldom are: mostly they have the size of the sum after cancellation, or of one product.
  const double partial = precision.unit > precision.sum_unit ? 1 : 0;
  for (int64_t index = 0; index < sums.size(); ++index) {
    result.value[index] = sums.value[index];
    const double magnitude = sums.magnitude[index];
    const double error = sums.error[index] + (magnitude == 0 ? 0 : each * magnitude);
    result.error[index] = with_rounding(error, 1 + partial, magnitude, precision);
  }
  return result;
}

Sums normalised(const Values& x, double eps, const std::vector<double>& gain, int64_t first,
                const Precision& precision) {
  if (!x.bounded) return plainly_normalised(x, eps, gain, first);
  const double size = static_cast<double>(x.size());
  double mean = 0, mean_error = 0, mean_magnitude = 0, mean_square = 0;
  for (int64_t index = 0; index < x.size(); ++index) {
    mean += x.value[index] / size;
    mean_error += x.error[index] / size;
    mean_magnitude += std::abs(x.value[index]) / size;
    mean_square += x.value[index] * x.value[index] / size;
  }
  const double each = gamma(x.size(), precision.sum_unit);
  mean_error += each * mean_magnitude;
  double variance = 0, variance_error = each * mean_square;  // one pass: E[x^2] - E[x]^2 cancels
  for (int64_t index = 0; index < x.size(); ++index) {
    const double centred = x.value[index] - mean, error = x.error[index] + mean_error;
    variance += centred * centred / size;
    variance_error += error * (2 * std::abs(centred) + error) / size;
  }
  const double scale = 1 / std::sqrt(variance + eps);
  const double low = std::max(variance - variance_error, 0.0) + eps;
  const double scale_error = low > 0 ? 1 / std::sqrt(low) - scale : kInfinity;
  Sums result = zero_sums(x.size(), true);
  for (int64_t index = 0; index < x.size(); ++index) {
    const double centred = x.value[index] - mean, by = gain.empty() ? 1 : gain[first + index];
    const double value = centred * scale * by;
    const double error = x.error[index] + mean_error + precision.unit * (std::abs(x.value[index]) + std::abs(mean));
    const double total = std::abs(by) * (error * (scale + scale_error) + std::abs(centred) * scale_error);
    result.value[index] = value;
    result.magnitude[index] = std::abs(value);
    result.error[index] = with_rounding(total, 4, std::abs(value), precision);
  }
  return result;
}

Values activated(const Activation& activation, double clip, const Values& x, const Precision& precision) {
  Values result(x.size(), x.bounded);
  if (!x.bounded) {
    for (int64_t index = 0; index < x.size(); ++index)
      result.value[index] = apply(activation, clamped(x.value[index], clip));
    return result;
  }
  const bool transcendental = is_transcendental(activation);
  for (int64_t index = 0; index < x.size(); ++index) {
    const double argument = x.value[index], inside = clamped(argument, clip);
    const double value = apply(activation, inside);
    // Clipping moves two arguments no further apart. Where an argument lies beyond the bound by more than its error,
    // its clipped value has no error.
    const bool fixed = std::abs(argument) - x.error[index] > clip;
    const double error = fixed ? 0 : spread(activation, inside, x.error[index]);
    const double magnitude = std::max(1.0, std::abs(value)) + (transcendental ? 0 : std::abs(activation.beta));
    const bool exact = activation.kind == Activation::Kind::kIdentity || activation.kind == Activation::Kind::kRelu;
    result.value[index] = value;
    result.error[index] = exact ? error : with_rounding(error, kActivationUnits, magnitude, precision);
  }
  return result;
}

}  // namespace weft::verify
