#pragma once

#include <array>

#include "verify/bounded.h"

namespace weft::verify {

/// The state that one step of one row of the batch reads, each part by itself, so that a stale one can be put in.
struct StepInput {
  const Values& x;         // [I]
  const Values& products;  // [P]: the h that W_h is multiplied with
  const Values& blend;     // [H]: a GRU's h in z h
  const Values& cell;      // [H]: an LSTM's c
};

/// The results of a step: the gates after their activations, and the next state.
struct StepResult {
  std::array<Values, 4> gates;
  Values c;
  Values h;
};

StepResult step(const Cell& cell, const Direction& direction, const Precision& precision, const StepInput& input);

}  // namespace weft::verify
