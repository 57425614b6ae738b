// Tensors from outside that are not dense. Together with a recorded tensor they would make PyTorch dispatch to a
// backend that has no kernels.

#include "operator/aten.h"
#include "recorder/recording.h"

namespace weft::recorder {
namespace {

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (!argument.isTensor() || !argument.toTensor().defined() || argument.toTensor().layout() == at::kStrided)
      continue;
    throw UnsupportedError(op.schema().name() + ": a tensor of layout " + c10::str(argument.toTensor().layout()));
  }
  throw UnsupportedError(op.schema().name() + ": a tensor that is not dense");
}

}  // namespace
}  // namespace weft::recorder

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&weft::recorder::refuse>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&weft::recorder::refuse>());
}
