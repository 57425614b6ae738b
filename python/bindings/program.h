#pragma once

#include <memory>
#include <string_view>

#include "operator/program_table.h"

namespace weft::bindings {

/// weft._C.Program: a program as a Python object. It is printed when its text is asked for or it is called. Used under
/// the GIL.
class Program {
 public:
  explicit Program(ir::Program program) : program_(std::make_shared<const ir::Program>(std::move(program))) {}
  explicit Program(torch_operator::ProgramRef called) : program_(called->shared()), called_(std::move(called)) {}
  /// User's error if the text doesn't parse.
  explicit Program(std::string_view text) : Program(torch_operator::find_program(text)) {}

  const ir::Program& operator*() const { return *program_; }
  const torch_operator::SharedProgram& shared() const { return program_; }

  /// The operator's entry for the program, by its text. Printed at the first call.
  const torch_operator::ProgramRef& called() const {
    if (!called_) called_ = torch_operator::intern(program_);
    return called_;
  }

 private:
  torch_operator::SharedProgram program_;
  mutable torch_operator::ProgramRef called_;
};

}  // namespace weft::bindings
