// Recurrent modules on the device: a layer is one call of weft::call, as on the CPU, and so is a single step. PyTorch
// takes the device for a GPU, and calls fused cells for it where Weft has no program.

#include "device/recurrent.h"

#include <ATen/TensorOperators.h>

#include "override/run.h"
#include "override/state.h"
#include "record/cells.h"

namespace weft::device {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor with_bias(const Tensor& x, const OptionalTensor& bias) { return bias && bias->defined() ? x + *bias : x; }

/// The second result is for CUDA's backward. It is unused here, where autograd differentiates the operations
/// themselves.
std::tuple<Tensor, Tensor> fused_gru_cell(const Tensor& x, const Tensor& y, const Tensor& h, const OptionalTensor& b_x,
                                          const OptionalTensor& b_y) {
  return {record::gru_from_gates(with_bias(x, b_x), with_bias(y, b_y), h), at::empty({0}, h.options())};
}

std::tuple<Tensor, Tensor, Tensor> fused_lstm_cell(const Tensor& x, const Tensor& y, const Tensor& c,
                                                   const OptionalTensor& b_x, const OptionalTensor& b_y) {
  auto [h, next] = record::lstm_from_gates(with_bias(x, b_x) + with_bias(y, b_y), c);
  return {h, next, at::empty({0}, c.options())};
}

void register_cells(torch::Library& m) {
  m.impl("_thnn_fused_gru_cell", fused_gru_cell);
  m.impl("_thnn_fused_lstm_cell", fused_lstm_cell);
}

}  // namespace

void register_recurrent_modules() {
  override_kernels::set_has_device();
  for (const auto key : {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1}) {
    auto* library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);  // for good
    register_cells(*library);
    override_kernels::register_cells_on_device(*library);
    override_kernels::register_on_device(*library);
  }
}

}  // namespace weft::device
