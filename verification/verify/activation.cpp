#include "verify/activation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace weft::verify {
namespace {

using Function = Activation::Kind;

struct Entry {
  std::string_view name;
  Function kind;
  int parameters;       // how many of alpha and beta the function has
  bool transcendental;  // whether there is an exp in it
  double slope;         // a bound of the derivative of a function that isn't monotone; 0 for a monotone one
};

constexpr std::array kEntries{
    Entry{"sigmoid", Function::kSigmoid, 0, true, 0},
    Entry{"tanh", Function::kTanh, 0, true, 0},
    Entry{"relu", Function::kRelu, 0, false, 0},
    Entry{"identity", Function::kIdentity, 0, false, 0},
    Entry{"hard_sigmoid", Function::kHardSigmoid, 2, false, 0},
    Entry{"hard_tanh", Function::kHardTanh, 0, false, 0},
    Entry{"softsign", Function::kSoftsign, 0, false, 0},
    Entry{"softplus", Function::kSoftplus, 0, true, 0},
    Entry{"elu", Function::kElu, 1, true, 0},
    Entry{"selu", Function::kSelu, 0, true, 0},
    Entry{"leaky_relu", Function::kLeakyRelu, 1, false, 0},
    Entry{"silu", Function::kSilu, 0, true, 1.1},
    Entry{"gelu", Function::kGelu, 0, true, 1.13},
    Entry{"gelu_tanh", Function::kGeluTanh, 0, true, 1.13},
    Entry{"mish", Function::kMish, 0, true, 1.09},
    Entry{"exp", Function::kExp, 0, true, 0},
    Entry{"affine", Function::kAffine, 2, false, 0},
    Entry{"scaled_tanh", Function::kScaledTanh, 2, true, 0},
    Entry{"thresholded_relu", Function::kThresholdedRelu, 1, false, 0},
    Entry{"relu6", Function::kRelu6, 0, false, 0},
    Entry{"hard_silu", Function::kHardSilu, 0, false, 1.5},
    Entry{"log_sigmoid", Function::kLogSigmoid, 0, true, 0},
};

const Entry& entry_of(Function kind) {
  return *std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& entry) { return entry.kind == kind; });
}

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// std::clamp and std::max would turn a NaN into a number.
double clip(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

double apply_smooth(const Activation& activation, double x) {
  const double alpha = activation.alpha;
  switch (activation.kind) {
    case Function::kSigmoid:
      return sigmoid(x);
    case Function::kTanh:
      return std::tanh(x);
    case Function::kSoftsign:
      return x / (1 + std::abs(x));
    case Function::kSoftplus:
      return std::isnan(x) ? x : softplus(x);
    case Function::kElu:
      return x > 0 ? x : alpha * std::expm1(x);
    case Function::kSelu: {
      constexpr double kScale = 1.0507009873554804934193349852946;
      constexpr double kAlpha = 1.6732632423543772848170429916717;
      return kScale * (x > 0 ? x : kAlpha * std::expm1(x));
    }
    case Function::kSilu:
      return x * sigmoid(x);
    case Function::kGelu:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    case Function::kGeluTanh: {
      constexpr double kRootTwoOverPi = 0.79788456080286535588;
      return 0.5 * x * (1 + std::tanh(kRootTwoOverPi * (x + 0.044715 * x * x * x)));
    }
    case Function::kMish:
      return x * std::tanh(softplus(x));
    case Function::kExp:
      return std::exp(x);
    case Function::kScaledTanh:
      return alpha * std::tanh(activation.beta * x);
    case Function::kLogSigmoid:
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
    case Function::kRelu:
      return x < 0 ? 0 : x;
    case Function::kIdentity:
      return x;
    case Function::kHardSigmoid:
      return clip(alpha * x + activation.beta, 0, 1);
    case Function::kHardTanh:
      return clip(x, -1, 1);
    case Function::kLeakyRelu:
      return x > 0 ? x : alpha * x;
    case Function::kAffine:
      return alpha * x + activation.beta;
    case Function::kThresholdedRelu:
      return x > alpha ? x : 0;
    case Function::kRelu6:
      return clip(x, 0, 6);
    case Function::kHardSilu:
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
