#pragma once

#include <string>
#include <vector>

#include "interpreter/array.h"
#include "ir/program.h"
#include "passes/differentiation/vjp.h"

namespace weft::testing {

using Arrays = std::vector<interpreter::Array>;

/// The largest difference between the elements of both, relative to 1 + the larger absolute value; infinite when shapes
/// differ or only one is NaN.
double difference(const Arrays& a, const Arrays& b);

/// Cotangents for all outputs, as random_inputs makes them.
Arrays random_cotangents(const ir::Program& program, const ir::Bindings& bindings, uint64_t seed);

/// The indices of floating inputs.
std::vector<bool> floating_inputs(const ir::Program& program);

/// The gradients of the wanted inputs by the forward and the backward program, whose texts are parsed back first.
Arrays gradients(const ir::Program& program, const std::vector<bool>& wanted, const Arrays& inputs,
                 const Arrays& cotangents, passes::Keep keep);

/// The largest relative difference between directional derivatives by central differences (f64 programs) and the
/// gradients, over one random direction an input. Where differences of two step sizes disagree (at a kink) a direction
/// is left out.
double gradient_error(const ir::Program& program, const Arrays& inputs, const Arrays& cotangents,
                      const Arrays& gradients);

}  // namespace weft::testing
