#pragma once

#include <c10/core/Device.h>

namespace weft::record {

/// Whether weft::call takes tensors of the device: the CPU, or "weft" where PrivateUse1 is Weft's device and not
/// another package's.
bool is_at_home(c10::Device device);

}  // namespace weft::record
