#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "verify/recording.h"
#include "verify/step.h"

namespace weft::verify {

/// The problem to be explained: layers, and a recording that disagrees with them.
struct Problem {
  std::vector<Layer> layers;
  Shared<Recording> recording;
};

/// The layers and directions in which a change is made; -1: all.
struct Scope {
  int64_t layer = -1;
  int64_t direction = -1;
};

/// Whether a change is also tried together with others. Some changes have many forms, few of which occur in practice.
enum class InPairs { kYes, kLate, kNo };

/// A known difference between implementations, as a change that has the same effect: of the layers, or of the order in
/// which the recording is read.
struct Change {
  std::string name;    // stable; docs/verify.md lists them
  std::string detail;  // its form
  std::function<void(Problem&)> apply;
  bool rearranges = false;  // moves elements, so its order relative to another such change matters
  InPairs in_pairs = InPairs::kYes;
  bool by_step = false;       // also tried in some steps only
  Steps steps = Steps::kAll;  // the steps in which it is made
  /// Not null if the change has a number that is read off the problem's recording. Returns the change with this number;
  /// nothing if no number makes layers and recording agree.
  std::function<std::optional<Change>(const Problem&, ProductCache&)> solve{};
};

/// All changes that apply to a problem, preferred ones first. Changes without effect are left out.
std::vector<Change> known_changes(const Problem& problem, const Scope& scope);

// The changes of three parts: the cell's computation; the elements of its parameters; the order of steps, rows and
// directions.
void add_cell_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes);
void add_activation_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes);
void add_weight_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes);
void add_order_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes);
void add_number_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes);
/// Changes of a gate's terms: terms left out, numbers added, the places of the biases.
void add_term_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes);
/// Changes with a number that is read off the recording.
void add_solved_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes);
/// Adds the changes that can be limited to some steps, limited to these.
void add_step_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes);

/// The layers in the scope, the directions in the scope.
void edit_layers(Problem& problem, const Scope& scope, const std::function<void(Layer&)>& edit);
void edit_directions(Problem& problem, const Scope& scope, const std::function<void(Layer&, Direction&)>& edit);

/// The gates that a cell computes itself. A gate that is one minus another is not among them.
std::vector<int> computed_gates(const Cell& cell);
/// The gates in words: ", in gate n" or ", in gates r, z"; "" for all gates of a kind.
std::string gates_text(Kind kind, const std::vector<int>& gates);

/// Whether `holds` is true for a layer in the scope.
bool any_layer(const Problem& problem, const Scope& scope, const std::function<bool(const Layer&)>& holds);
bool any_direction(const Problem& problem, const Scope& scope,
                   const std::function<bool(const Layer&, const Direction&)>& holds);

}  // namespace weft::verify
