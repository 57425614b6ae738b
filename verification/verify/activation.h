#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::verify {

/// An elementwise function by the names of verification/python/formats/_layers.py, with its parameters (unused ones
/// don't matter).
struct Activation {
  enum class Kind {
    kSigmoid,
    kTanh,
    kRelu,
    kIdentity,
    kHardSigmoid,      // clip(alpha x + beta, 0, 1)
    kHardTanh,         // clip(x, -1, 1)
    kSoftsign,         // x / (1 + |x|)
    kSoftplus,         // log(1 + exp(x))
    kElu,              // x > 0 ? x : alpha (exp(x) - 1)
    kSelu,             // of Klambauer et al. 2017
    kLeakyRelu,        // x > 0 ? x : alpha x
    kSilu,             // x sigmoid(x)
    kGelu,             // x Phi(x)
    kGeluTanh,         // its approximation by tanh
    kMish,             // x tanh(softplus(x))
    kExp,              // exp(x)
    kAffine,           // alpha x + beta
    kScaledTanh,       // alpha tanh(beta x)
    kThresholdedRelu,  // x > alpha ? x : 0
    kRelu6,            // clip(x, 0, 6)
    kHardSilu,         // x relu6(x + 3) / 6
    kLogSigmoid,       // log(sigmoid(x))
  };
  Kind kind = Kind::kTanh;
  double alpha = 0;
  double beta = 0;

  bool operator==(const Activation& other) const;
};

/// Throws weft::Error, which lists the names, if there is no such activation.
Activation activation_named(std::string_view name, double alpha, double beta);

/// The activation in Python's form: "hard_sigmoid(0.2, 0.5)".
std::string to_string(const Activation& activation);

double apply(const Activation& activation, double x);

/// How far the function's values in [x - radius, x + radius] can be from the value at x; infinite for an infinite
/// radius where the function is unbounded. A radius 0 gives 0.
double spread(const Activation& activation, double x, double radius);

/// True for functions with an exp in them, which a processor only approximates.
bool is_transcendental(const Activation& activation);

}  // namespace weft::verify
