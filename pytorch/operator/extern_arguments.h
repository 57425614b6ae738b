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
    kInteger,  ///< times the sizes of operands' dims, if there are such
    kNumber,
    kText,
    kWord,     ///< of a dtype (f32), a layout, a memory format or a device
    kOperand,  ///< %2
    kList
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;  ///< of a bool 0 or 1, of an operand which
  double number = 0;
  std::string text;
  std::vector<std::pair<int64_t, int64_t>> sizes;  ///< operand, dim
  std::vector<ExternArgument> items;
};

/// `aten.add.Tensor(%0, %1, 1)`: the operator's name and overload, and its arguments.
struct ExternCall {
  std::string name, overload;
  std::vector<ExternArgument> arguments;
};

/// User's error saying where the text can't be read.
ExternCall parse_extern_call(std::string_view text);

/// The argument as the type of the schema's wants it; user's error naming both if it can't be.
c10::IValue to_value(const ExternArgument& argument, const c10::TypePtr& type, const std::vector<at::Tensor>& operands);

}  // namespace weft::torch_operator
