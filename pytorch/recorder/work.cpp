#include "recorder/work.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>

#include "recorder/recording.h"
#include "recorder/recording_tensor.h"

namespace weft::recorder {

namespace {

/// Numbers that operations have to write, and that products of several rows have to pack, for a program to be ahead.
/// From one step of tanh(a h + b x) and one of a GRU of 16 to 1,024 units and 1 to 256 rows on an Intel Xeon, where the
/// program is ahead from 250,000 to 500,000 on: to find and call it takes 40 us more than to run the step, and PyTorch
/// writes or packs a number in 0.1 to 0.2 ns.
constexpr int64_t kNumbers = 1 << 18;

}  // namespace

bool is_little_work(const Recording& recording) {
  int64_t rows = 0, weights = 0;
  for (const auto& [dtype, sizes] : recording.input_types())
    if (!sizes.empty()) rows = std::max(rows, c10::multiply_integers(sizes.begin(), sizes.end() - 1));
  for (const at::Tensor& tensor : recording.outside())
    if (tensor.dim() > 1) weights += tensor.numel();
  return recording.computed() + (rows > 1 ? weights : 0) < kNumbers;
}

bool are_seen_by_none(const std::vector<at::Tensor>& tensors) {
  if (Recording::current() != nullptr || c10::impl::TorchDispatchModeTLS::any_modes_set() ||
      at::impl::PythonTorchFunctionTLS::stack_len() > 0)
    return false;
  for (auto key : {c10::DispatchKey::Tracer, c10::DispatchKey::FuncTorchDynamicLayerFrontMode})
    if (c10::impl::tls_is_dispatch_key_included(key)) return false;
  return std::ranges::all_of(tensors, [](const at::Tensor& t) { return t.device().is_cpu() && is_plain(t); });
}

}  // namespace weft::recorder
