#pragma once

#include <string>

namespace weft::tools {

/// The op table (src/ir/ops.def) as text: a line of column names, then a line an op, its columns separated by tabs.
/// scripts/op_reference.py makes a table of docs/ir.md of it.
std::string op_table();

}  // namespace weft::tools
