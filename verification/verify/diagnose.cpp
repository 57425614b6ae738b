#include "verify/diagnose.h"

#include <algorithm>
#include <utility>

#include "verify/search.h"

namespace weft::verify {
namespace {

// A part of the problem: one layer, or one direction of it.
Problem part_of(const Problem& whole, int64_t layer, int64_t direction) {
  Problem part;
  part.layers = {whole.layers[layer]};
  const Recording& all = *whole.recording;
  Recording& recording = part.recording.edit();
  recording.steps = all.steps;
  recording.batch = all.batch;
  recording.precision = all.precision;
  recording.own = all.own;
  recording.x = static_cast<int64_t>(all.inputs.size()) > layer ? all.inputs[layer] : all.x;
  recording.layers = {all.layers[layer]};
  if (direction < 0) {
    const bool last = layer + 1 == static_cast<int64_t>(whole.layers.size());
    if (last) recording.merged = all.merged;
    return part;
  }
  part.layers[0].directions = {whole.layers[layer].directions[direction]};
  part.layers[0].merge = Merge::kConcat;
  recording.layers[0] = {all.layers[layer][direction]};
  return part;
}

Scope in_whole(int64_t layer, int64_t direction) { return {layer, direction}; }

// Diagnoses a layer whose input is known, and of which all directions are recorded or none.
void diagnose_layer(const Problem& whole, int64_t layer, int most, const Poll& poll, std::vector<Diagnosis>& result) {
  const Problem problem = part_of(whole, layer, -1);
  const Comparison comparison = compare(problem.layers, *problem.recording);
  if (comparison.agrees()) return;
  std::vector<int64_t> differing;
  for (const Track& track : comparison.tracks)
    if (track.first) differing.push_back(track.direction);
  const bool two = problem.layers[0].directions.size() == 2;
  const bool separate = two && differing.back() < 2;
  // Layers get equal shares of the work. A layer shares its own with those of its directions that are searched
  // separately.
  const double share = 1 / (static_cast<double>(whole.layers.size()) * (separate ? 1 + differing.size() : 1));
  const auto search_direction = [&](int64_t direction, int count) {
    Diagnosis diagnosis = search(part_of(whole, layer, direction), {}, count, poll, share);
    diagnosis.scope = in_whole(layer, direction);
    return diagnosis;
  };
  const auto search_layer = [&](int count) {
    Diagnosis diagnosis = search(problem, {}, count, poll, share);
    diagnosis.scope = in_whole(layer, -1);
    return diagnosis;
  };
  // Fewer changes come first, then those of a smaller part. Two directions with a fault each are two diagnoses.
  const bool one = separate && differing.size() == 1;
  std::vector<Diagnosis> each(differing.size());
  for (int count = 1; count <= most; ++count) {
    if (one) {
      if (Diagnosis found = search_direction(differing[0], count); !found.changes.empty())
        return result.push_back(std::move(found));
    }
    if (Diagnosis found = search_layer(count); !found.changes.empty()) return result.push_back(std::move(found));
    if (!separate || one) continue;
    for (size_t index = 0; index < differing.size(); ++index)
      if (each[index].changes.empty()) each[index] = search_direction(differing[index], count);
    const bool all = std::all_of(each.begin(), each.end(), [](const Diagnosis& d) { return !d.changes.empty(); });
    if (all || count == most) return result.insert(result.end(), each.begin(), each.end()), void();
  }
  result.push_back({in_whole(layer, -1), {}, {}});
}

// Only results of the last layer are known.
Diagnosis diagnose_stack(const Problem& problem, int most, const Poll& poll) {
  const double share = 1 / static_cast<double>(1 + problem.layers.size());
  for (int count = 1; count <= most; ++count) {
    if (Diagnosis found = search(problem, {}, count, poll, share); !found.changes.empty()) return found;
    for (size_t layer = 0; layer < problem.layers.size(); ++layer) {
      const Scope scope{static_cast<int64_t>(layer), -1};
      if (Diagnosis found = search(problem, scope, count, poll, share); !found.changes.empty()) return found;
    }
  }
  return {{}, {}, {}};
}

}  // namespace

std::vector<Diagnosis> diagnose(const std::vector<Layer>& layers, const Recording& recording, int most,
                                const Poll& poll) {
  const Problem problem{layers, recording};
  std::vector<Diagnosis> result;
  const bool all_known = layers.size() == 1 || recording.inputs.size() == layers.size();
  if (all_known) {
    for (size_t layer = 0; layer < layers.size(); ++layer)
      diagnose_layer(problem, static_cast<int64_t>(layer), most, poll, result);
  } else if (!compare(layers, recording).agrees()) {
    result.push_back(diagnose_stack(problem, most, poll));
  }
  return result;
}

}  // namespace weft::verify
