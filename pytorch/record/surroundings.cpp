#include "record/surroundings.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>

#include "record/recording.h"
#include "record/recording_tensor.h"
#include "torch_release.h"

#if WEFT_TORCH_AT_LEAST(14)
#include <ATen/NodeCreationHooks.h>
#endif

namespace weft::record {

bool are_seen_by_none(const std::vector<at::Tensor>& tensors) {
  if (Recording::current() != nullptr || c10::impl::TorchDispatchModeTLS::any_modes_set() ||
      at::impl::PythonTorchFunctionTLS::stack_len() > 0 || are_nodes_watched())
    return false;
  for (auto key : {c10::DispatchKey::Tracer, c10::DispatchKey::FuncTorchDynamicLayerFrontMode})
    if (c10::impl::tls_is_dispatch_key_included(key)) return false;
  return std::ranges::all_of(tensors, is_plain);
}

bool are_nodes_watched() {
#if WEFT_TORCH_AT_LEAST(14)
  return !at::impl::NodeCreationHooks::empty();
#else
  return false;
#endif
}

}  // namespace weft::record
