#pragma once

#include <string_view>

#include "ir/program.h"

namespace weft::ir {

/// Reads what print() writes (the syntax is shown there; `//` starts a comment). Verified on return.
/// User's error "line 3, column 14: ..." on text that is not a program; withstands any text.
Program parse(std::string_view text);

}  // namespace weft::ir
