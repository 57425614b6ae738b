#include "verify/diagnose.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::verify {
namespace {

// The search's budget in multiply-adds, a few seconds: pairs beyond it aren't tried.
constexpr double kPairBudget = 3e9;

constexpr double kMuchSmaller = 0.25;

struct Found {
  Changes changes;
  double worst;  // against the bound of the recording's own precision
};

double work_of(const Problem& problem) {
  double total = 0;
  for (const Layer& layer : problem.layers)
    for (const Direction& direction : layer.directions)
      total += static_cast<double>(direction.weight_x.values.size() + direction.weight_h.values.size());
  return total;
}

bool fits(const Problem& problem) {
  for (const Layer& layer : problem.layers)
    for (const Direction& direction : layer.directions)
      for (const Matrix* state : {&direction.h0, &direction.c0})
        if (state->rows > 1 && state->rows != problem.recording.batch) return false;
  return true;
}

// The largest of all defects, which a change that explains them must make much smaller: bounds can be wide enough to
// hold anything where layers that weren't recorded amplify rounding.
double largest_defect(const Comparison& comparison) {
  double largest = 0;
  for (const Track& track : comparison.tracks)
    for (const double defect : track.defect) largest = std::max(largest, std::isnan(defect) ? 0 : defect);
  return largest;
}

bool explains(const Problem& problem, double defect, const Changes& changes, std::vector<Found>& found) {
  Problem changed = problem;
  for (const Change& change : changes) change.apply(changed);
  if (!fits(changed)) return false;
  // The cheap bounds turn most away; what they let pass is looked at more closely.
  if (!compare(changed.layers, changed.recording, Bounds::kWorstCase, 1).agrees()) return false;
  const Comparison comparison = compare(changed.layers, changed.recording);
  if (!comparison.agrees()) return false;
  // A coarser precision is no such change: what it rounds stays where it is.
  const bool same_precision = changed.recording.precision.unit == problem.recording.precision.unit;
  if (same_precision && largest_defect(comparison) > kMuchSmaller * defect) return false;
  const double scale = changed.recording.precision.unit / problem.recording.precision.unit;
  found.push_back({changes, comparison.worst * scale});
  return true;
}

// The best first: within rounding before those that only a coarser precision makes agree; much closer before less
// close, which counts where unrecorded layers have made the bounds wide; then in the order of the catalogue.
Diagnosis best(const Scope& scope, std::vector<Found> found) {
  Diagnosis result{scope, {}, {}};
  if (found.empty()) return result;
  const auto closest =
      std::min_element(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.worst < b.worst; });
  const double enough = std::max(10 * closest->worst, 1e-3);
  for (Found& each : found) {
    if (each.worst > enough) continue;
    if (result.changes.empty())
      result.changes = std::move(each.changes);
    else
      result.also.push_back(std::move(each.changes));
  }
  return result;
}

// `late`: those of which one is rare, others otherwise.
void try_pairs(const Problem& problem, double defect, const std::vector<Change>& known, bool late,
               const std::function<void()>& poll, std::vector<Found>& found) {
  // A copy of the weights, which is made for each pair, and a step or two; twice as dear where they are in no cache.
  const double work = std::max(work_of(problem), 1.0) * (work_of(problem) < 1e6 ? 3 : 6);
  double budget = late ? kPairBudget / 8 : kPairBudget;
  for (size_t first = 0; first < known.size(); ++first) {
    poll();
    for (size_t second = first + 1; second < known.size(); ++second) {
      const Change &a = known[first], &b = known[second];
      const bool is_late = a.in_pairs == InPairs::kLate || b.in_pairs == InPairs::kLate;
      if (a.name == b.name || a.in_pairs == InPairs::kNo || b.in_pairs == InPairs::kNo || is_late != late) continue;
      if ((budget -= work) < 0) return;
      if (explains(problem, defect, {a, b}, found)) continue;
      if (a.rearranges && b.rearranges) explains(problem, defect, {b, a}, found);
    }
  }
}

// `pairs`: two at a time; otherwise one.
Diagnosis search(const Problem& problem, const Scope& scope, bool pairs, const std::function<void()>& poll) {
  std::vector<Found> found;
  const double defect = largest_defect(compare(problem.layers, problem.recording));
  const std::vector<Change> known = known_changes(problem, scope);
  if (pairs) {
    try_pairs(problem, defect, known, /*late=*/false, poll, found);
    if (found.empty()) try_pairs(problem, defect, known, /*late=*/true, poll, found);
    return best(scope, std::move(found));
  }
  for (const Change& change : known) {
    poll();
    explains(problem, defect, {change}, found);
  }
  return best(scope, std::move(found));
}

// One layer, or one direction of it, by itself.
Problem part_of(const Problem& whole, int64_t layer, int64_t direction) {
  Problem part;
  part.layers = {whole.layers[layer]};
  part.recording.steps = whole.recording.steps;
  part.recording.batch = whole.recording.batch;
  part.recording.precision = whole.recording.precision;
  part.recording.own = whole.recording.own;
  const bool known = static_cast<int64_t>(whole.recording.inputs.size()) > layer;
  part.recording.x = known ? whole.recording.inputs[layer] : whole.recording.x;
  part.recording.layers = {whole.recording.layers[layer]};
  if (direction < 0) {
    const bool last = layer + 1 == static_cast<int64_t>(whole.layers.size());
    if (last) part.recording.merged = whole.recording.merged;
    return part;
  }
  part.layers[0].directions = {whole.layers[layer].directions[direction]};
  part.layers[0].merge = Merge::kConcat;
  part.recording.layers[0] = {whole.recording.layers[layer][direction]};
  return part;
}

Scope in_whole(int64_t layer, int64_t direction) { return {layer, direction}; }

// A layer whose input is known, all of whose directions are recorded or none.
void diagnose_layer(const Problem& whole, int64_t layer, bool with_pairs, const std::function<void()>& poll,
                    std::vector<Diagnosis>& result) {
  const Problem problem = part_of(whole, layer, -1);
  const Comparison comparison = compare(problem.layers, problem.recording);
  if (comparison.agrees()) return;
  std::vector<int64_t> differing;
  for (const Track& track : comparison.tracks)
    if (track.first) differing.push_back(track.direction);
  const bool two = problem.layers[0].directions.size() == 2;
  const bool separate = two && differing.back() < 2;
  const auto search_direction = [&](int64_t direction, bool pairs) {
    Diagnosis diagnosis = search(part_of(whole, layer, direction), {}, pairs, poll);
    diagnosis.scope = in_whole(layer, direction);
    return diagnosis;
  };
  const auto search_layer = [&](bool pairs) {
    Diagnosis diagnosis = search(problem, {}, pairs, poll);
    diagnosis.scope = in_whole(layer, -1);
    return diagnosis;
  };
  // What needs fewer changes first; of these what concerns less. Two directions with a fault each are two diagnoses.
  const bool one = separate && differing.size() == 1;
  std::vector<Diagnosis> each(differing.size());
  for (const bool pairs : {false, true}) {
    if (pairs && !with_pairs) break;
    if (one) {
      if (Diagnosis found = search_direction(differing[0], pairs); !found.changes.empty())
        return result.push_back(std::move(found));
    }
    if (Diagnosis found = search_layer(pairs); !found.changes.empty()) return result.push_back(std::move(found));
    if (!separate || one) continue;
    for (size_t index = 0; index < differing.size(); ++index)
      if (each[index].changes.empty()) each[index] = search_direction(differing[index], pairs);
    const bool all = std::all_of(each.begin(), each.end(), [](const Diagnosis& d) { return !d.changes.empty(); });
    if (all || pairs) return result.insert(result.end(), each.begin(), each.end()), void();
  }
  result.push_back({in_whole(layer, -1), {}, {}});
}

// Only results of the last layer are known.
Diagnosis diagnose_stack(const Problem& problem, bool with_pairs, const std::function<void()>& poll) {
  for (const bool pairs : {false, true}) {
    if (pairs && !with_pairs) break;
    if (Diagnosis found = search(problem, {}, pairs, poll); !found.changes.empty()) return found;
    for (size_t layer = 0; layer < problem.layers.size(); ++layer) {
      const Scope scope{static_cast<int64_t>(layer), -1};
      if (Diagnosis found = search(problem, scope, pairs, poll); !found.changes.empty()) return found;
    }
  }
  return {{}, {}, {}};
}

}  // namespace

std::vector<Diagnosis> diagnose(const std::vector<Layer>& layers, const Recording& recording, bool with_pairs,
                                const std::function<void()>& poll) {
  const Problem problem{layers, recording};
  std::vector<Diagnosis> result;
  const bool all_known = layers.size() == 1 || recording.inputs.size() == layers.size();
  if (all_known) {
    for (size_t layer = 0; layer < layers.size(); ++layer)
      diagnose_layer(problem, static_cast<int64_t>(layer), with_pairs, poll, result);
  } else if (!compare(layers, recording).agrees()) {
    result.push_back(diagnose_stack(problem, with_pairs, poll));
  }
  return result;
}

}  // namespace weft::verify
