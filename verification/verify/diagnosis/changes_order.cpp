// Steps, rows of the batch and directions in another order.

#include <algorithm>
#include <utility>

#include "verify/diagnosis/changes.h"

namespace weft::verify {
namespace {

void flip_time(std::vector<double>& array, int64_t steps) {
  if (array.empty() || steps == 0) return;
  const auto each = static_cast<int64_t>(array.size()) / steps;
  for (int64_t first = 0, last = steps - 1; first < last; ++first, --last)
    std::swap_ranges(array.begin() + first * each, array.begin() + (first + 1) * each, array.begin() + last * each);
}

void flip_recorded(Recorded& recorded, int64_t steps) {
  flip_time(recorded.h, steps);
  flip_time(recorded.c, steps);
  for (auto& gate : recorded.gates) flip_time(gate, steps);
}

// Reverses a recording in time. Where nothing was recorded, the direction's results are reversed instead, as the next
// layer reads them.
void flip_results(Direction& direction, Recorded& recorded, int64_t steps) {
  if (recorded.h.empty()) direction.flipped = !direction.flipped;
  flip_recorded(recorded, steps);
}

void exchange_axes(std::vector<double>& array, int64_t steps, int64_t batch) {
  if (array.empty()) return;
  const auto each = static_cast<int64_t>(array.size()) / (steps * batch);
  const std::vector<double> old = array;
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t row = 0; row < batch; ++row)
      std::copy_n(old.begin() + (step * batch + row) * each, each, array.begin() + (row * steps + step) * each);
}

void exchange_axes(Recording& recording) {
  const int64_t steps = recording.steps, batch = recording.batch;
  exchange_axes(recording.x, steps, batch);
  exchange_axes(recording.merged, steps, batch);
  for (auto& input : recording.inputs) exchange_axes(input, steps, batch);
  for (auto& layer : recording.layers)
    for (Recorded& recorded : layer) {
      exchange_axes(recorded.h, steps, batch);
      exchange_axes(recorded.c, steps, batch);
      for (auto& gate : recorded.gates) exchange_axes(gate, steps, batch);
      recorded.hn.clear();  // it belongs to other steps and rows
      recorded.cn.clear();
    }
  std::swap(recording.steps, recording.batch);
}

template <typename Edit>
void edit_recorded(Problem& problem, const Scope& scope, const Edit& edit) {
  for (size_t layer = 0; layer < problem.layers.size(); ++layer) {
    if (scope.layer >= 0 && scope.layer != static_cast<int64_t>(layer)) continue;
    for (size_t direction = 0; direction < problem.layers[layer].directions.size(); ++direction) {
      if (scope.direction >= 0 && scope.direction != static_cast<int64_t>(direction)) continue;
      edit(problem.layers[layer].directions[direction], problem.recording.edit().layers[layer][direction]);
    }
  }
}

void turn_around(Problem& problem, const Scope& scope) {
  edit_directions(problem, scope, [](Layer&, Direction& each) { each.reverse = !each.reverse; });
}

void add_time_orders(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  if (problem.recording->steps < 2) return;
  changes.push_back(
      {"time_order", "results in the order of the input", [scope](Problem& changed) { turn_around(changed, scope); }});
  changes.push_back({"time_order", "results in the order of processing", [scope](Problem& changed) {
                       turn_around(changed, scope);
                       // If the change is in all layers, the sequence is reversed before the first and after the last.
                       const bool all = scope.layer < 0;
                       edit_recorded(changed, scope, [&](Direction& direction, Recorded& recorded) {
                         if (all) return flip_recorded(recorded, changed.recording->steps);
                         flip_results(direction, recorded, changed.recording->steps);
                       });
                       flip_time(changed.recording.edit().merged, changed.recording->steps);
                     }});
  const bool backwards =
      any_direction(problem, scope, [](const Layer&, const Direction& each) { return each.reverse; });
  changes.push_back({"reverse_output_order", backwards ? "" : "of a direction that runs forward",
                     [scope, backwards](Problem& changed) {
                       edit_recorded(changed, scope, [&](Direction& direction, Recorded& recorded) {
                         if (direction.reverse == backwards)
                           flip_results(direction, recorded, changed.recording->steps);
                       });
                     },
                     false, backwards ? InPairs::kYes : InPairs::kLate});
}

bool states_fit(const Problem& problem, int64_t batch) {
  return !any_direction(problem, {},
                        [&](const Layer&, const Direction& each) { return each.h0.rows > 1 && each.h0.rows != batch; });
}

void add_direction_orders(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const bool two = any_layer(problem, scope, [](const Layer& layer) { return layer.directions.size() == 2; });
  if (!two || scope.direction >= 0) return;
  changes.push_back({"direction_order", "results exchanged", [scope](Problem& changed) {
                       for (size_t index = 0; index < changed.layers.size(); ++index) {
                         Layer& layer = changed.layers[index];
                         const bool here = scope.layer < 0 || scope.layer == static_cast<int64_t>(index);
                         if (!here || layer.directions.size() != 2) continue;
                         auto& recorded = changed.recording.edit().layers[index];
                         if (recorded[0].h.empty()) layer.exchanged = !layer.exchanged;
                         std::swap(recorded[0], recorded[1]);
                       }
                     }});
  changes.push_back({"direction_order", "weights exchanged", [scope](Problem& changed) {
                       edit_layers(changed, scope, [](Layer& layer) {
                         if (layer.directions.size() != 2) return;
                         auto& directions = layer.directions;
                         std::swap(directions[0], directions[1]);
                         std::swap(directions[0].reverse, directions[1].reverse);
                         std::swap(directions[0].h0, directions[1].h0);
                         std::swap(directions[0].c0, directions[1].c0);
                       });
                     }});
  const bool states = any_direction(
      problem, scope, [](const Layer&, const Direction& each) { return !each.h0.empty() || !each.c0.empty(); });
  if (!states) return;
  changes.push_back({"initial_state", "the two directions' exchanged", [scope](Problem& changed) {
                       edit_layers(changed, scope, [](Layer& layer) {
                         if (layer.directions.size() != 2) return;
                         auto& directions = layer.directions;
                         std::swap(directions[0].h0, directions[1].h0);
                         std::swap(directions[0].c0, directions[1].c0);
                       });
                     }});
}

}  // namespace

void add_order_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const size_t before = changes.size();
  add_time_orders(problem, scope, changes);
  add_direction_orders(problem, scope, changes);
  const Recording& recording = *problem.recording;
  // All layers and directions share the rows, so this changes the whole problem.
  if (recording.steps != 1 || recording.batch != 1) {
    if (states_fit(problem, recording.steps) && recording.steps * recording.batch > 0)
      changes.push_back({"batch_axis", "", [](Problem& changed) { exchange_axes(changed.recording.edit()); }});
  }
  for (size_t index = before; index < changes.size(); ++index) changes[index].rearranges = true;
}

}  // namespace weft::verify
