#include "verify/activation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace weft::verify {
namespace {

using Kind = Activation::Kind;

struct Entry {
  std::string_view name;
  Kind kind;
  int parameters;       // how many of alpha and beta it has
  bool transcendental;  // has an exp in it
  double slope;         // for a function that isn't monotone: a bound of its derivative; 0 for a monotone one
};

constexpr std::array kEntries{
    Entry{"sigmoid", Kind::kSigmoid, 0, true, 0},
    Entry{"tanh", Kind::kTanh, 0, true, 0},
    Entry{"relu", Kind::kRelu, 0, false, 0},
    Entry{"identity", Kind::kIdentity, 0, false, 0},
    Entry{"hard_sigmoid", Kind::kHardSigmoid, 2, false, 0},
    Entry{"hard_tanh", Kind::kHardTanh, 0, false, 0},
    Entry{"softsign", Kind::kSoftsign, 0, false, 0},
    Entry{"softplus", Kind::kSoftplus, 0, true, 0},
    Entry{"elu", Kind::kElu, 1, true, 0},
    Entry{"selu", Kind::kSelu, 0, true, 0},
    Entry{"leaky_relu", Kind::kLeakyRelu, 1, false, 0},
    Entry{"silu", Kind::kSilu, 0, true, 1.1},
    Entry{"gelu", Kind::kGelu, 0, true, 1.13},
    Entry{"gelu_tanh", Kind::kGeluTanh, 0, true, 1.13},
    Entry{"mish", Kind::kMish, 0, true, 1.09},
    Entry{"exp", Kind::kExp, 0, true, 0},
    Entry{"affine", Kind::kAffine, 2, false, 0},
    Entry{"scaled_tanh", Kind::kScaledTanh, 2, true, 0},
    Entry{"thresholded_relu", Kind::kThresholdedRelu, 1, false, 0},
    Entry{"relu6", Kind::kRelu6, 0, false, 0},
    Entry{"hard_silu", Kind::kHardSilu, 0, false, 1.5},
    Entry{"log_sigmoid", Kind::kLogSigmoid, 0, true, 0},
};

const Entry& entry_of(Kind kind) {
  return *std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& entry) { return entry.kind == kind; });
}

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// std::clamp and std::max would make a NaN a number.
double clip(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

double apply_smooth(const Activation& activation, double x) {
  const double alpha = activation.alpha;
  switch (activation.kind) {
    case Kind::kSigmoid:
      return sigmoid(x);
    case Kind::kTanh:
      return std::tanh(x);
    case Kind::kSoftsign:
      return x / (1 + std::abs(x));
    case Kind::kSoftplus:
      return std::isnan(x) ? x : softplus(x);
    case Kind::kElu:
      return x > 0 ? x : alpha * std::expm1(x);
    case Kind::kSelu: {
      constexpr double kScale = 1.0507009873554804934193349852946;
      constexpr double kAlpha = 1.6732632423543772848170429916717;
      return kScale * (x > 0 ? x : kAlpha * std::expm1(x));
    }
    case Kind::kSilu:
      return x * sigmoid(x);
    case Kind::kGelu:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    case Kind::kGeluTanh: {
      constexpr double kRootTwoOverPi = 0.79788456080286535588;
      return 0.5 * x * (1 + std::tanh(kRootTwoOverPi * (x + 0.044715 * x * x * x)));
    }
    case Kind::kMish:
      return x * std::tanh(softplus(x));
    case Kind::kExp:
      return std::exp(x);
    case Kind::kScaledTanh:
      return alpha * std::tanh(activation.beta * x);
    case Kind::kLogSigmoid:
      return std::isnan(x) ? x : -softplus(-x);
    default:
      internal_error("not a smooth activation");
  }
}

}  // namespace

bool Activation::operator==(const Activation& other) const {
  const int parameters = entry_of(kind).parameters;
  return kind == other.kind && (parameters < 1 || alpha == other.alpha) && (parameters < 2 || beta == other.beta);
}

Activation activation_named(std::string_view name, double alpha, double beta) {
  for (const Entry& entry : kEntries)
    if (entry.name == name) return {entry.kind, alpha, beta};
  std::string known;
  for (const Entry& entry : kEntries) known += (known.empty() ? "" : ", ") + std::string(entry.name);
  user_error("there is no activation '{}'; there are {}", name, known);
}

std::string to_string(const Activation& activation) {
  const Entry& entry = entry_of(activation.kind);
  switch (entry.parameters) {
    case 0:
      return std::string(entry.name);
    case 1:
      return fmt::format("{}({:.9g})", entry.name, activation.alpha);
    default:
      return fmt::format("{}({:.9g}, {:.9g})", entry.name, activation.alpha, activation.beta);
  }
}

double apply(const Activation& activation, double x) {
  const double alpha = activation.alpha;
  switch (activation.kind) {
    case Kind::kRelu:
      return x < 0 ? 0 : x;
    case Kind::kIdentity:
      return x;
    case Kind::kHardSigmoid:
      return clip(alpha * x + activation.beta, 0, 1);
    case Kind::kHardTanh:
      return clip(x, -1, 1);
    case Kind::kLeakyRelu:
      return x > 0 ? x : alpha * x;
    case Kind::kAffine:
      return alpha * x + activation.beta;
    case Kind::kThresholdedRelu:
      return x > alpha ? x : 0;
    case Kind::kRelu6:
      return clip(x, 0, 6);
    case Kind::kHardSilu:
      return x * clip(x + 3, 0, 6) / 6;
    default:
      return apply_smooth(activation, x);
  }
}

double spread(const Activation& activation, double x, double radius) {
  if (radius == 0) return 0;
  if (const double slope = entry_of(activation.kind).slope; slope > 0) return slope * radius;
  const double y = apply(activation, x);
  const double low = std::abs(y - apply(activation, x - radius));
  const double high = std::abs(apply(activation, x + radius) - y);
  return std::isnan(low) || std::isnan(high) ? radius + std::abs(y) : std::max(low, high);
}

bool is_transcendental(const Activation& activation) { return entry_of(activation.kind).transcendental; }

}  // namespace weft::verify
