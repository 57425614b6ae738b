#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operator/aten.h"

namespace weft::torch_operator {

/// An argument in the text of an extern op's call.
struct ExternArgument {
  enum class Kind {
    kNone,
    kBool,
    kInteger,  ///< a number, perhaps times sizes of operands' dims
    kNumber,
    kText,
    kWord,     ///< a dtype (f32), a layout, a memory format or a device
    kOperand,  ///< %2
    kList
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;  ///< for a bool 0 or 1, for an operand its number
  double number = 0;
  std::string text;
  std::vector<std::pair<int64_t, int64_t>> sizes;  ///< (operand, dim) of each size
  std::vector<ExternArgument> items;
};

/// `aten.add.Tensor(%0, %1, 1)`: the operator's name and overload, and its arguments.
struct ExternCall {
  std::string name, overload;
  std::vector<ExternArgument> arguments;
};

/// Parses a call. User's error that names the place if the text is malformed.
ExternCall parse_extern_call(std::string_view text);

/// Converts the argument to the type of the operator's schema; user's error naming both if it doesn't fit.
c10::IValue to_value(const ExternArgument& argument, const c10::TypePtr& type, const std::vector<at::Tensor>& operands);

}  // namespace weft::torch_operator
