#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/program.h"

namespace weft::streaming {

/// A constant of the step program.
struct Constant {
  bool is_weight;  ///< else a result of the start program
  size_t number;   ///< of the weight, or of the start program's result
};

/// An input or result of the step program that isn't a state or a constant.
struct Port {
  std::optional<size_t> time_dim;  ///< none: it has no time
  int64_t per_chunk = 0;           ///< elements along it
  /// For a result: chunk c holds the whole's elements from index c * per_chunk - lag on. Elements with a negative index
  /// are meaningless.
  int64_t lag = 0;
};

/// A model over time as a step. Its state is what the model remembers of the sequence so far.
///
///   step:  (states..., inputs..., constants...) -> (next states..., outputs...)
///   start: (weights...) -> (initial states..., derived constants...)
///
/// Step takes `chunk` steps of each input at once; if they are several, it may contain loops over them. It has no
/// symbol and no extern. Start is run once.
struct Streamed {
  ir::Program step, start;
  int64_t chunk = 1;
  std::vector<std::string> states;  ///< a name of each
  std::vector<Constant> constants;
  std::vector<Port> inputs, outputs;
};

/// `whole`: a program whose first inputs are the model's and whose other inputs are weights. Input i has time along
/// time_dims[i]. All time dims have the same symbol as their size, and no other dim has a symbol. `group`: the size of
/// the dim after each time dim, for a model that takes only multiples of so many steps; in the step the two dims are
/// one. `chunk`: the number of steps that the step takes at once, a multiple of the least possible number; 0: that
/// number. Several steps become loops over them, and products with as many rows. `delay`: how many steps an output may
/// lag behind its inputs.
///
/// Throws RefusedError for an op that needs the future or the sequence's end, and the user's error for inputs that
/// aren't as described.
///
///   program @moving(%x: f32[B,T]) {
///     %p = pad %x {dim = 1, low = 1, high = 0}
///     %q = slice %p {dim = 1, start = 0, limit = dim(T)}
///     %y = add %x, %q
///     return %y
///   }
///
/// has the step (%state: f32[B,1], %x: f32[B,1]) -> (%x, %state + %x).
Streamed stream(const ir::Program& whole, const std::vector<std::optional<size_t>>& time_dims, int64_t delay,
                int64_t group = 1, int64_t chunk = 0);

}  // namespace weft::streaming
