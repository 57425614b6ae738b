#pragma once

#include <string>
#include <utility>

#include "operator/aten.h"
#include "recorder/kernel_table.h"

/// ATen operations that the IR has no op for, as others that it has.
///
/// PyTorch's own decompositions stand behind these. What is here is what they lack, what they would differentiate to
/// something else than eager mode does (at a kink, or where an untaken branch overflows), and what is so common in a
/// step that importing them for it alone would take longer than the capture.
///
/// They run on tensors that hold nothing, so they read no values. Sizes are those at hand but may stand for symbols: a
/// size may be an operation's integer argument, but no floating-point number where it may be the leading dim's.
namespace weft::decompose {

/// The kernel, of the operation's own schema, that makes the operation of others; nullptr where there is none here.
const c10::KernelFunction* find(const c10::OperatorName& name);

using Table = recorder::KernelTable;

void add_activations(Table& table);
void add_elementwise(Table& table);
void add_movement(Table& table);
void add_products(Table& table);
void add_reductions(Table& table);
void add_running_totals(Table& table);

}  // namespace weft::decompose
