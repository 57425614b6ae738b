#pragma once

#include <functional>
#include <optional>
#include <string>

#include "verify/changes.h"
#include "verify/step.h"

namespace weft::verify {

/// A change with a number in it.
struct Dial {
  std::string name;
  std::function<std::string(double)> detail;
  std::function<void(Problem&, double)> turn;
  double lowest, highest;
  bool by_factors;  // whether numbers are tried at equal factors or at equal distances
};

/// Reads the number off the recording: from the first step that differs, of whose largest difference it is a root; then
/// it must make all of the recording agree. A round number is preferred if it does so as well.
///
/// Returns: nothing where no number in the dial's range does it, or the input and h of the layer that differs aren't
/// known.
///
/// cache: products of earlier steps; the work is counted in it.
std::optional<Change> solved(const Problem& problem, const Dial& dial, ProductCache& cache);

}  // namespace weft::verify
