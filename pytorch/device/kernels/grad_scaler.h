#pragma once

#include "device/kernels/operators.h"

namespace weft::device {

/// _amp_foreach_non_finite_check_and_unscale_(self[], found_inf, inv_scale): what torch.amp.GradScaler does to
/// gradients before a step of an optimiser. Recorded as plain operations, so that no value is read.
void check_and_unscale(const Operator& op, torch::jit::Stack& stack);

/// _amp_update_scale_(self, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval): the scale of
/// the next step.
void update_scale(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
