#pragma once

#include <torch/library.h>

namespace weft::device {

/// A library for kernels of one dispatch key, of ATen's operations or, with the space "_", of all operations. It stays
/// registered until the process ends.
inline torch::Library& kept_library(c10::DispatchKey key, const char* space = "aten") {
  return *new torch::Library(torch::Library::IMPL, space, key, __FILE__, __LINE__);
}

/// Has `add` register kernels of ATen's operations for tensors of the device, whether or not they require gradients.
inline void register_for_device(void (*add)(torch::Library&)) {
  for (const auto key : {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1}) add(kept_library(key));
}

}  // namespace weft::device
