#pragma once

#include <optional>
#include <span>

#include "planning/schedule.h"
#include "planning/target.h"
#include "runtime/calls/kernel_call.h"

namespace weft::planning {

/// A kernel's call for an op; nothing where the kernel doesn't take the op's dtypes or layout.
using KernelArguments = std::optional<runtime::KernelCall> (*)(Schedule& schedule, const ir::Op& op);

using MaybeCall = std::optional<runtime::KernelCall>;

struct Kernel {
  ir::OpCode op;
  KernelArguments arguments;
  OperandViews views =
      OperandViews::kNone;  ///< the views of its operands that it follows; other operands lie in buffers of their own
};

/// The kernels for ops; among those for one op the best comes first. Each file of arguments lists its own.
std::span<const Kernel> matrix_kernels();
std::span<const Kernel> element_kernels();
std::span<const Kernel> movement_kernels();

inline bool is_index(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }
/// Whether the micro-kernels for products and sums of rows take the type.
inline bool has_kernels(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

/// Whether the kernel of an `outer` or `reduce_sum` takes operands with a stride between rows: products over rows, and
/// sums down columns.
bool takes_columns(const ir::Program& program, const ir::Op& op);

/// The number of elements of dims first..last-1.
ir::Dim count_of(const ir::Shape& shape, size_t first, size_t last);

}  // namespace weft::planning
