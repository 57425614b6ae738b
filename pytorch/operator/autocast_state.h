#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/macros/Export.h>

/// Whether autocast is on, and to what type. These are declared again because ATen/autocast_mode.h includes all of
/// ATen, which takes the compiler several seconds. device/kernels/autocast.cpp includes both, so they can't part.
namespace at::autocast {

TORCH_API bool is_autocast_enabled(c10::DeviceType device_type);
TORCH_API c10::ScalarType get_autocast_dtype(c10::DeviceType device_type);

}  // namespace at::autocast
