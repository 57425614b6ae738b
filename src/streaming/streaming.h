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
  /// Of a result: chunk c holds the whole's elements from c * per_chunk - lag on. Those of a negative number hold
  /// nothing of meaning.
  int64_t lag = 0;
};

/// A model over time as a step. Its state is what the model remembers of the sequence so far.
///
///   step:  (states..., inputs..., constants...) -> (next states..., outputs...)
///   start: (weights...) -> (initial states..., derived constants...)
///
/// Step takes `chunk` steps of each input at once, of which it has loops if they are several. It has no symbol and no
/// extern. Start is run once.
struct Streamed {
  ir::Program step, start;
  int64_t chunk = 1;
  std::vector<std::string> states;  ///< a name of each
  std::vector<Constant> constants;
  std::vector<Port> inputs, outputs;
};

/// `whole`: a program whose first inputs are the model's, of which input i has time along time_dims[i], and whose other
/// inputs are weights. The size of each time dim is the same symbol, and no other size is one. `group`: how many steps
/// the dim behind each time dim has, for a model that takes multiples of them only; in the step they are one dim.
/// `chunk`: how many steps the step takes at once, a multiple of the least, which 0 stands for. More of them are loops
/// of so many steps, and products of as many rows. `delay`: how many steps an output may lag behind what it reads.
///
/// Throws RefusedError for what needs the future or the sequence's end, user's error for inputs that are not so.
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
