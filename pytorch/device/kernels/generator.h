#pragma once

#include <ATen/core/Generator.h>

#include "operator/aten.h"

namespace weft::device {

/// The device's default generator, which is the CPU's: with one seed, device and CPU draw the same numbers.
const at::Generator& default_generator();
/// A generator of the device with a state of its own.
at::Generator make_generator();

/// A generator argument for the CPU's kernels: the generator of the CPU from which the given generator of the device
/// draws. None stays None.
c10::IValue generator_on_cpu(const c10::IValue& generator);

}  // namespace weft::device
