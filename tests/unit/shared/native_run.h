#pragma once

#include <string>
#include <vector>

#include "interpreter/array.h"
#include "ir/program.h"
#include "runtime/threads/team.h"

namespace weft::testing {

/// The program's outputs by the engine, into memory that held other numbers. With Settings::guard it runs twice, with
/// inputs and outputs right before and right behind pages that fault: internal error where the two runs differ, or
/// where anything beside an output is written. A result that takes an input's memory takes that of a copy.
std::vector<interpreter::Array> run_native(const std::string& text, const std::vector<interpreter::Array>& inputs,
                                           const ir::Bindings& bindings, runtime::Team& team);

/// How many calls the interpreter has run since the process began, for all reasons that contain `part`.
int64_t fallbacks(const std::string& part = "");

}  // namespace weft::testing
