// Tensors from outside that are not dense. Together with a recorded tensor they would make PyTorch dispatch to a
// backend that has no kernels.

#include <atomic>

#include "operator/aten.h"
#include "record/recording.h"
#include "record/traits.h"

namespace weft::record {
namespace {

std::atomic<Otherwise> otherwise_not_dense{nullptr};

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (Recording::current() == nullptr)
    if (const Otherwise otherwise = otherwise_not_dense.load(std::memory_order_acquire)) return otherwise(op, *stack);
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (!argument.isTensor() || !argument.toTensor().defined() || argument.toTensor().layout() == at::kStrided)
      continue;
    throw UnsupportedError(op.schema().name() + ": a tensor of layout " + c10::str(argument.toTensor().layout()) +
                           "; to_dense() gives one that can be a program's");
  }
  throw UnsupportedError(op.schema().name() + ": a tensor that is not dense");
}

/// Operations of sparse tensors. Where an operation has a composite kernel too, meant for dense tensors, the dispatcher
/// would take that one before the fallback.
void add_kernels_like(torch::Library& library, c10::DispatchKey like) {
  for (const c10::OperatorHandle& op : aten_operations_with(like))
    library.impl(c10::toString(op.operator_name()).c_str(), torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace

void set_otherwise_not_dense(Otherwise otherwise) { otherwise_not_dense = otherwise; }

}  // namespace weft::record

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&weft::record::refuse>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&weft::record::refuse>());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) { weft::record::add_kernels_like(m, c10::DispatchKey::SparseCPU); }
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) { weft::record::add_kernels_like(m, c10::DispatchKey::SparseCsrCPU); }
