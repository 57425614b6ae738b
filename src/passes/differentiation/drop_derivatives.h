#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Removes the ops and attributes that only differentiation needs, so that no later pass meets them:
///
///     %s = stop_gradient %x : f32[B,8]
///     %y = tanh %s : f32[B,8]
/// becomes
///     %y = tanh %x : f32[B,8]
///
/// custom_vjp is replaced by its values in the same way; an extern op loses its attribute `vjp`.
///
/// Stands first in the pipeline, which compiles programs that are differentiated already. Differentiation itself does
/// not run it, since a program of primals may be differentiated again.
void drop_derivatives(ir::Program& program);

}  // namespace weft::passes
