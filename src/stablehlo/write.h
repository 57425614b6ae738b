#pragma once

#include <string>
#include <string_view>

#include "ir/program.h"

namespace weft::stablehlo {

/// The program as a module of StableHLO with one public function @main, at the sizes that `bindings` gives its symbols:
/// StableHLO's text has numbers for sizes. `@add(%x: f32[B,2]) {...}` with B = 3 gives
///
///     module @add {
///       func.func public @main(%arg0: tensor<3x2xf32>) -> tensor<3x2xf32> {
///         %0 = stablehlo.add %arg0, %arg0 : tensor<3x2xf32>
///         return %0 : tensor<3x2xf32>
///       }
///     }
///
/// A scan becomes a stablehlo.while that counts its steps. A donated input has the attribute by which XLA reuses its
/// memory.
///
/// StableHLO cannot raise errors, so what is an error at a call of Weft is none here: an index outside its table is
/// clamped or skipped, and an integer divided by zero is some integer.
///
/// User's error naming an op that has no lowering (usually an extern), or an unbound symbol.
std::string write(const ir::Program& program, const ir::Bindings& bindings);

/// The name of what an op becomes: "add", "while"; empty if it has no lowering.
std::string_view lowered_as(ir::OpCode code);

}  // namespace weft::stablehlo
