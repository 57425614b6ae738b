#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Takes out what only differentiation asks for, so that nothing below pays for it:
///
///     %s = stop_gradient %x : f32[B,8]
///     %y = tanh %s : f32[B,8]
/// becomes
///     %y = tanh %x : f32[B,8]
///
/// custom_vjp gives way to its values in the same way, and an extern op loses its `vjp`.
///
/// Stands first in the pipeline, which compiles programs that are differentiated already, and nowhere in
/// differentiation: a program of primals may be differentiated again.
void drop_derivatives(ir::Program& program);

}  // namespace weft::passes
