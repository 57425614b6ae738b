// weft::call under the older vmap, which torch.autograd.grad(is_grads_batched=True) and
// gradcheck(check_batched_grad=True) still use. The rule for torch.func's vmap is in python/weft/_patches/vmap.py.

#include <ATen/LegacyVmapTransforms.h>
#include <ATen/ops/stack.h>

#include "operator/call.h"

namespace weft::torch_operator {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Makes one call for each element of the mapped dims, which are the first dims of the views.
Tensors call_batched(std::string_view text, at::TensorList inputs) {
  const ProgramRef program = find_program(text);
  auto views = at::MultiBatchVmapTransform::logicalToPhysical(inputs);
  auto mapped = views[0].tensor().sizes().slice(0, views[0].numBatchDims()).vec();
  std::vector<Tensors> columns;
  for (const at::VmapPhysicalView& view : views) {
    columns.push_back(view.tensor().flatten(0, static_cast<int64_t>(mapped.size()) - 1).unbind(0));
  }
  TORCH_CHECK(!columns[0].empty(), "weft::call: vmap over a dim of size 0");
  std::vector<Tensors> results;  // [output][element]
  for (size_t element = 0; element < columns[0].size(); ++element) {
    Tensors arguments;
    for (const Tensors& column : columns) arguments.push_back(column[element]);
    Tensors outputs = call(program, arguments);
    results.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) results[i].push_back(std::move(outputs[i]));
  }
  Tensors stacked;
  for (const Tensors& elements : results) {
    auto sizes = mapped;
    sizes.insert(sizes.end(), elements[0].sizes().begin(), elements[0].sizes().end());
    stacked.push_back(views[0].getPhysicalToLogicalMap().apply(at::stack(elements).view(sizes)));
  }
  return stacked;
}

}  // namespace
}  // namespace weft::torch_operator

TORCH_LIBRARY_IMPL(weft, Batched, m) { m.impl("call", weft::torch_operator::call_batched); }
