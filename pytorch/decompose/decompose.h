#pragma once

#include <string>
#include <utility>

#include "operator/aten.h"
#include "record/kernel_table.h"

/// Decompositions: ATen operations that the IR has no op for, as operations that it has.
///
/// PyTorch's own decompositions are used where there is none here. A decomposition is here because PyTorch has none; or
/// because PyTorch's has another derivative than eager mode (at a kink, or where an untaken branch overflows); or
/// because the operation is so common in steps that importing PyTorch's decomposition would take longer than the
/// capture.
///
/// They run on tensors without data, so they read no values. A size may stand for a symbol: it may be an integer
/// argument of an operation, but the leading dim's must not become a floating-point number.
namespace weft::decompose {

/// The decomposition of an operation, a kernel of its schema; nullptr if there is none here.
const c10::KernelFunction* find(const c10::OperatorName& name);

/// The same for complex numbers. The decompositions of find() don't hold for these, and PyTorch's own are used only if
/// they are known to hold.
const c10::KernelFunction* find_complex(const c10::OperatorName& name);

using Table = record::KernelTable;

void add_activations(Table& table);
void add_batch_norm(Table& table);
void add_complex(Table& table);
void add_elementwise(Table& table);
void add_losses(Table& table);
void add_movement(Table& table);
void add_products(Table& table);
void add_reductions(Table& table);
void add_running_totals(Table& table);

}  // namespace weft::decompose
