// torch.autocast("weft"): the kernels that cast arguments before an operation runs. Which operations, and to what, is
// PyTorch's own lists of ATen/autocast_mode.h, those that autocast on CUDA uses; docs/autocast.md has them as a table.

#include "device/autocast.h"

#include <ATen/autocast_mode.h>

#include "torch_release.h"

namespace weft::device {
namespace {

using at::IntArrayRef, at::Scalar, at::ScalarType, at::Tensor;  // the lists write them so

/// PyTorch's refusal, in its words, by the kernel that it has for CUDA.
Tensor refuse_binary_cross_entropy(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight,
                                   int64_t reduction) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("aten::binary_cross_entropy", "")
                      .typed<decltype(refuse_binary_cross_entropy)>();
  return op.redispatch(c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA), self, target, weight, reduction);
}

#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FLOAT32_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define FLOAT32_APPEND_DTYPE(...) KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(__VA_ARGS__)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

// The macros call the library `m`.
void add_lists(torch::Library& m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
  AT_FORALL_FP32(FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(FLOAT32_APPEND_DTYPE)
  AT_FORALL_PROMOTE(PROMOTE)
#if WEFT_TORCH_AT_LEAST(14)
  FLOAT32(linalg_matrix_sqrth)  // which the lists lack; CPU and CUDA have it beside them
#endif
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

/// Whole layers, of which the lists have none: CUDA's autocast has them as _cudnn_rnn, all of whose arguments it casts.
/// Each state and result is of the lower type, as on CUDA and as the lists' cells give them.
void add_layers(torch::Library& m) {
  LOWER_PRECISION(gru, input)
  LOWER_PRECISION(gru, data)
  LOWER_PRECISION(lstm, input)
  LOWER_PRECISION(lstm, data)
  LOWER_PRECISION(rnn_tanh, input)
  LOWER_PRECISION(rnn_tanh, data)
  LOWER_PRECISION(rnn_relu, input)
  LOWER_PRECISION(rnn_relu, data)
}

#undef LOWER_PRECISION
#undef FLOAT32
#undef FLOAT32_SET_DTYPE
#undef FLOAT32_APPEND_DTYPE
#undef PROMOTE

}  // namespace

void register_autocast() {
  constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
  // Never destroyed: the kernels stay as long as the process.
  auto& all = *new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  auto& aten = *new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFallthrough());
  add_lists(aten);
  add_layers(aten);
}

}  // namespace weft::device
