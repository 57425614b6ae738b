#pragma once

#include "passes/differentiation/adjoints.h"

/// One function an op of ops.def that has a derivative: from the cotangents of its results to those of its operands.
/// Rules are made of ops of the IR only, so what they make can be differentiated again. Where a function has a kink
/// they follow PyTorch: relu'(0) = 0, abs'(0) = 0, maximum and minimum split a tie evenly, reduce_max spreads evenly
/// over ties.
namespace weft::passes::vjp_rules {

/// `op` is the primal op; only scan's rule changes it (further ys).
using Rule = void (*)(Adjoints& adjoints, ir::Op& op);

/// Null for an op without a derivative.
Rule rule(ir::OpCode code);

void copy(Adjoints& adjoints, ir::Op& op);
void neg(Adjoints& adjoints, ir::Op& op);
void abs(Adjoints& adjoints, ir::Op& op);
void exp(Adjoints& adjoints, ir::Op& op);
void expm1(Adjoints& adjoints, ir::Op& op);
void log(Adjoints& adjoints, ir::Op& op);
void log2(Adjoints& adjoints, ir::Op& op);
void log10(Adjoints& adjoints, ir::Op& op);
void log1p(Adjoints& adjoints, ir::Op& op);
void sqrt(Adjoints& adjoints, ir::Op& op);
void rsqrt(Adjoints& adjoints, ir::Op& op);
void tanh(Adjoints& adjoints, ir::Op& op);
void sigmoid(Adjoints& adjoints, ir::Op& op);
void relu(Adjoints& adjoints, ir::Op& op);
void sin(Adjoints& adjoints, ir::Op& op);
void cos(Adjoints& adjoints, ir::Op& op);
void erf(Adjoints& adjoints, ir::Op& op);
void erfc(Adjoints& adjoints, ir::Op& op);
void cast(Adjoints& adjoints, ir::Op& op);
void add(Adjoints& adjoints, ir::Op& op);
void sub(Adjoints& adjoints, ir::Op& op);
void mul(Adjoints& adjoints, ir::Op& op);
void div(Adjoints& adjoints, ir::Op& op);
void rem(Adjoints& adjoints, ir::Op& op);
void pow(Adjoints& adjoints, ir::Op& op);
void atan2(Adjoints& adjoints, ir::Op& op);
void maximum(Adjoints& adjoints, ir::Op& op);
void minimum(Adjoints& adjoints, ir::Op& op);
void select(Adjoints& adjoints, ir::Op& op);
void broadcast(Adjoints& adjoints, ir::Op& op);
void reshape(Adjoints& adjoints, ir::Op& op);
void transpose(Adjoints& adjoints, ir::Op& op);
void slice(Adjoints& adjoints, ir::Op& op);
void pad(Adjoints& adjoints, ir::Op& op);
void concat(Adjoints& adjoints, ir::Op& op);
void reverse(Adjoints& adjoints, ir::Op& op);
void gather(Adjoints& adjoints, ir::Op& op);
void scatter_add(Adjoints& adjoints, ir::Op& op);
void scatter(Adjoints& adjoints, ir::Op& op);
void reduce_sum(Adjoints& adjoints, ir::Op& op);
void reduce_max(Adjoints& adjoints, ir::Op& op);
void matmul(Adjoints& adjoints, ir::Op& op);
void outer(Adjoints& adjoints, ir::Op& op);
void batch_matmul(Adjoints& adjoints, ir::Op& op);
void scan(Adjoints& adjoints, ir::Op& op);
void cond(Adjoints& adjoints, ir::Op& op);
/// The user's error: gradients need max_steps.
void while_loop(Adjoints& adjoints, ir::Op& op);
/// The program that the op brings along. The user's error where it brings none, or one that doesn't fit.
void external(Adjoints& adjoints, ir::Op& op);
void custom_vjp(Adjoints& adjoints, ir::Op& op);

}  // namespace weft::passes::vjp_rules
