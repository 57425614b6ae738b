#pragma once

#include <optional>

#include "planning/schedule.h"
#include "runtime/calls/kernel_call.h"

namespace weft::planning {

/// The call of a kernel for an op; nothing where the kernel doesn't do these dtypes or this layout.
using KernelArguments = std::optional<runtime::KernelCall> (*)(const Schedule& schedule, const ir::Op& op);

using MaybeCall = std::optional<runtime::KernelCall>;

// matrix_arguments.cpp
MaybeCall pack_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall outer_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall column_sum_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall product_arguments(const Schedule& schedule, const ir::Op& op);

// element_arguments.cpp
MaybeCall fold_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall iota_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall size_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall divide_arguments(const Schedule& schedule, const ir::Op& op);

// movement_arguments.cpp
MaybeCall transpose_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall reverse_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall slice_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall broadcast_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall concat_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall pad_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall gather_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall scatter_arguments(const Schedule& schedule, const ir::Op& op);
MaybeCall scatter_add_arguments(const Schedule& schedule, const ir::Op& op);

inline bool is_index(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }
/// Of the micro-kernels: products, sums of rows.
inline bool has_kernels(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

/// Whether the kernel of an `outer` or `reduce_sum` takes operands with a stride between rows: products over rows, and
/// sums down columns.
bool takes_columns(const ir::Program& program, const ir::Op& op);

/// The number of elements of dims first..last-1.
ir::Dim count_of(const ir::Shape& shape, size_t first, size_t last);

}  // namespace weft::planning
