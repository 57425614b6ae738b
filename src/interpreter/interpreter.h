#pragma once

#include <functional>
#include <span>
#include <vector>

#include "interpreter/array.h"
#include "ir/program.h"

namespace weft::interpreter {

/// The slow and obvious reference for every op. Tests compare other code with it, and it runs ops that have no machine
/// code. Elementwise ops compute in the operands' type (f32 for f16 and bf16, rounded once); sums and products of f32
/// accumulate in f64, of f16 and bf16 in f32, of integers modulo 2^64, in increasing order of index.
///
/// Runs a verified program. User's error when inputs don't fit it, std::bad_alloc when memory is short.
std::vector<Array> evaluate(const ir::Program& program, std::span<const Array> inputs);

/// A value defined outside the op, which its region may use.
using Captured = std::function<View(ir::ValueId)>;

/// Runs one op on operands of the sizes that their types have under `bindings`. The caller allocates the results, of
/// the sizes of their types; results overlap nothing. `captured` is needed for a scan whose region uses outer values.
void evaluate_op(const ir::Program& program, const ir::Op& op, std::span<const View> operands,
                 std::span<const MutableView> results, const ir::Bindings& bindings, const Captured& captured = {});

/// The sizes of a shape under bindings.
std::vector<int64_t> sizes_of(const ir::Shape& shape, const ir::Bindings& bindings);

}  // namespace weft::interpreter
