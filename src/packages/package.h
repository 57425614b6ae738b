#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "packages/step_model.h"
#include "packages/target.h"

namespace weft::packages {

/// A step as an object file for one target, with the facts that its header states.
struct Object {
  std::string bytes;
  std::string assembly;      ///< if it was asked for
  uint64_t fingerprint = 0;  ///< of program and weights: the same for all targets
  int64_t state_bytes = 0, state_align = 0, saved_bytes = 0;
  bool is_whole = true;                   ///< false: it lacks the function for several steps at once
  int64_t weights = 0, weight_bytes = 0;  ///< of products: how many, and bytes as they are stored, scales included
};

/// The functions of a step that an object has.
enum class Parts : uint8_t {
  kAll,
  kSingleSteps  ///< no function for several steps at once, which takes most of the time where there is one: `run` makes
                ///< one step after the other. Results and states are the same, in memory too.
};

/// Compiles a step. The object exports `<name>_model_<target>` and, weakly, `<name>_model`, and needs nothing of
/// anybody: no function of a library, no memory, no system. User's error naming what has no form in a package, or a
/// target that isn't there.
Object compile(const StepModel& model, const Target& target, bool assembly = false, Parts parts = Parts::kAll);

/// An object that defines `<name>_model`, which chooses among several targets of one architecture, given from the best
/// to the least: the first that the processor can run. User's error if nothing tells them apart.
std::string compile_choice(std::string_view name, const std::vector<std::string>& targets);

/// An archive of object files (names and bytes) for an architecture, in the format of its system's `ar`.
std::string archive(const std::vector<std::pair<std::string, std::string>>& members, std::string_view architecture);

}  // namespace weft::packages
