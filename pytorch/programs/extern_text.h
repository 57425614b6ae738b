#pragma once

#include <functional>
#include <string>
#include <vector>

#include "operator/aten.h"
#include "programs/sizes.h"

namespace weft::programs {

/// An operation and its arguments as the attribute `call` of an `extern` op (docs/ir.md). `others` are the arguments in
/// a second run, with other sizes. A symbolic size is written as `size(i, d)`, where operand i has this size as its dim
/// d. If no operand has this size, `carrier` adds an operand that has it, and returns the operand's number.
///
/// Throws record::UnsupportedError for an argument that can't be written down, Mismatch if the runs differ.
std::string extern_text(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                        const std::vector<c10::IValue>& others, record::SizeFit& sizes,
                        const std::vector<ir::Shape>& operand_sizes,
                        const std::function<size_t(const at::Tensor&)>& operand_of,
                        const std::function<size_t(const ir::Dim&)>& carrier);

/// Whether the type's values are integers for the dispatcher only: dtypes, layouts, memory formats.
bool is_code(const c10::TypePtr& type);

/// torch.float32
std::string python_name(at::ScalarType type);

}  // namespace weft::programs
