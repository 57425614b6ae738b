#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/aten.h"

namespace weft::programs {

/// A tensor of random numbers that is drawn before the program runs: `empty(shape).method_(*arguments)`.
struct Draw {
  std::string method;                  ///< bernoulli_, uniform_, normal_, exponential_, random_
  std::vector<c10::IValue> arguments;  ///< numbers only
};

/// Whether the operation, named as PyTorch prints it, draws random numbers.
bool is_draw(std::string_view op);
/// The draw that the operation makes with these arguments, in the schema's order.
Draw make_draw(std::string_view op, at::ArrayRef<c10::IValue> arguments);

}  // namespace weft::programs
