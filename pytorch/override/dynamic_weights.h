#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/native/quantized/PackedParams.h>

#include <optional>

#include "operator/aten.h"

namespace weft::override_kernels {

/// The weights of one linear layer that torch.ao packed: int8 [N, K] and float32 scales [N], and the bias it has now.
struct DynamicLinear {
  at::Tensor rows, scales;
  std::optional<at::Tensor> bias;
  bool ignores_range = false;  ///< QNNPACK's, which use all 8 bits whatever reduce_range says
};

/// The unpacked weights of a packed object, which never change. They are unpacked at the first call and kept as long as
/// the object lives. None if they aren't symmetric int8.
std::optional<DynamicLinear> unpacked(const c10::intrusive_ptr<LinearPackedParamsBase>& packed);

/// The two layers of a cell, from a torch.classes.rnn.CellParamsBase; none if it is no dynamically quantized one.
struct DynamicCell {
  c10::intrusive_ptr<LinearPackedParamsBase> ih, hh;
  bool reduce_range = false;
};
std::optional<DynamicCell> cell_of(const c10::IValue& params);

}  // namespace weft::override_kernels
