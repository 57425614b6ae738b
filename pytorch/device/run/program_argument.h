#pragma once

#include <torch/custom_class.h>

#include "operator/program_table.h"

namespace weft::device {

/// The program of a recorded weft::call. It takes the place of the text, which would have to be copied and compared.
struct ProgramArgument final : torch::CustomClassHolder {
  ProgramArgument(torch_operator::ProgramRef program, int64_t number) : program(std::move(program)), number(number) {}
  torch_operator::ProgramRef program;
  int64_t number;  ///< identifies a program as long as the operator keeps it; numbers are never reused
};

/// The program of a text, as an argument of a node.
c10::IValue program_argument(std::string_view text);
const ProgramArgument& program_argument(const c10::IValue& argument);

}  // namespace weft::device
