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
/// What is an error at the call in Weft is none in StableHLO, which can raise nothing: an index outside its table is
/// moved into it or skipped, and an integer divided by zero is some integer.
///
/// User's error naming the op where one has no lowering (an extern, above all), or a symbol that is unbound.
std::string write(const ir::Program& program, const ir::Bindings& bindings);

/// What an op becomes, in words: "add", "while"; empty if it has no lowering.
std::string_view lowered_as(ir::OpCode code);

}  // namespace weft::stablehlo
