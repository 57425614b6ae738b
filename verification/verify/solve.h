#pragma once

#include <functional>
#include <optional>
#include <string>

#include "verify/changes.h"

namespace weft::verify {

/// A change that contains a number.
struct Dial {
  std::string name;
  std::function<std::string(double)> detail;
  std::function<void(Problem&, double)> turn;
  double lowest, highest;
  bool by_factors;  // whether numbers are tried at equal factors or at equal distances
};

/// Finds the number from the recording: a root of the largest difference in the first step that differs. With it the
/// whole recording must agree. A round number is preferred if it makes the recording agree too.
///
/// Returns: nothing if no number in the dial's range does it, or if input and h of the differing layer aren't known.
std::optional<Change> solved(const Problem& problem, const Dial& dial);

}  // namespace weft::verify
