#pragma once

#include "passes/differentiation/adjoints.h"

/// One function an op of ops.def that has a derivative: from the cotangents of its results to those of its operands.
/// Rules emit ops of the IR only, so a derivative can be differentiated again. Where a function has a kink they follow
/// PyTorch: relu'(0) = 0, abs'(0) = 0, maximum and minimum split a tie evenly, reduce_max spreads evenly over ties.
namespace weft::passes::vjp_rules {

/// `op` is the primal op; only scan's rule changes it (further ys).
using Rule = void (*)(Adjoints& adjoints, ir::Op& op);

/// Null for an op without a derivative.
Rule rule(ir::OpCode code);

/// `none` is never called: rule() is null for it. The rule of `while` is the user's error (gradients need max_steps).
/// The rule of `extern` is the program that the op brings along; the user's error if there is none or it doesn't fit.
/// Only the rule of `scan` changes the op.
#define WEFT_OP(Enum, text, arity, Class, type_rule, vjp_rule, ...) void vjp_rule(Adjoints& adjoints, ir::Op& op);
#include "ir/ops.def"

}  // namespace weft::passes::vjp_rules
