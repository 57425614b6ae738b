#include "programs/stop_gradient.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

namespace weft::programs {

at::Tensor stop_gradient(const at::Tensor& tensor) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("weft::stop_gradient", "");
  return op.typed<at::Tensor(const at::Tensor&)>().call(tensor);
}

namespace {

at::Tensor without_history(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView below;
  return stop_gradient(tensor);
}

at::Tensor meta(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
}

}  // namespace
}  // namespace weft::programs

TORCH_LIBRARY_FRAGMENT(weft, m) { m.def("stop_gradient(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("stop_gradient", weft::programs::without_history); }
TORCH_LIBRARY_IMPL(weft, Meta, m) { m.impl("stop_gradient", weft::programs::meta); }
