#include "verify/diagnosis/diagnose.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <utility>

#include "verify/diagnosis/search.h"

namespace weft::verify {
namespace {

// The problem reduced to a layer, or to one direction of a layer.
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

// The parts of the work that is left which go to single changes, to pairs and to threes.
constexpr std::array<double, 3> kShares{0.6, 0.75, 1};

// Several searches, of one problem in several scopes or of parts of a problem. They share the work that is allowed for
// sets of each count.
class Searches {
 public:
  Searches(const Poll& poll, double work) : poll_(poll), work_(work) {}

  /// `problem` outlives the searches.
  void add(const Problem& problem, const Scope& scope, const Comparison& comparison, const Scope& name) {
    searches_.push_back(std::make_unique<Search>(problem, scope, comparison, poll_));
    names_.push_back(name);
  }
  size_t size() const { return searches_.size(); }

  /// Every search runs once a count at most.
  void begin(int count) { of_count_ = kShares[count - 1] * work_, left_ = static_cast<double>(size()); }
  Diagnosis run(size_t index, int count) {
    double allowed = of_count_ / left_--;
    const double before = allowed;
    Diagnosis result = searches_[index]->sets_of(count, allowed);
    of_count_ -= before - allowed;
    work_ -= before - allowed;
    result.scope = names_[index];
    for (const Untried& each : result.untried) note(each);
    result.untried = untried_;
    return result;
  }
  /// What is left of the work.
  double work() const { return work_; }
  const std::vector<Untried>& untried() const { return untried_; }

 private:
  // One entry a count.
  void note(const Untried& more) {
    auto same = std::find_if(untried_.begin(), untried_.end(), [&](const Untried& u) { return u.count == more.count; });
    if (same == untried_.end()) return untried_.push_back(more);
    same->left += more.left;
    same->all += more.all;
    for (const std::string& name : more.names)
      if (std::find(same->names.begin(), same->names.end(), name) == same->names.end()) same->names.push_back(name);
  }

  const Poll& poll_;
  double work_;
  double of_count_ = 0, left_ = 0;  // the work and the number of searches that are left of a count
  std::vector<std::unique_ptr<Search>> searches_;
  std::vector<Scope> names_;
  std::vector<Untried> untried_;
};

// Diagnoses a layer whose input is known, and of which all directions are recorded or none. Returns the work that is
// left of `work`.
double diagnose_layer(const Problem& whole, int64_t layer, const Comparison& comparison, double work, int most,
                      const Poll& poll, std::vector<Diagnosis>& result) {
  std::vector<int64_t> differing;
  for (const Track& track : comparison.tracks)
    if (track.first) differing.push_back(track.direction);
  std::deque<Problem> parts{part_of(whole, layer, -1)};
  const bool separate = parts[0].layers[0].directions.size() == 2 && differing.back() < 2;
  Searches searches(poll, work);
  searches.add(parts[0], {}, comparison, in_whole(layer, -1));
  for (const int64_t direction : separate ? differing : std::vector<int64_t>()) {
    const Problem& part = parts.emplace_back(part_of(whole, layer, direction));
    searches.add(part, {}, compare(part.layers, *part.recording), in_whole(layer, direction));
  }
  // Fewer changes come first, then those of a smaller part. Two directions with a fault each are two diagnoses.
  const bool one = searches.size() == 2;
  std::vector<Diagnosis> each(searches.size() - 1);
  for (int count = 1; count <= most; ++count) {
    searches.begin(count);
    for (const size_t index : one ? std::vector<size_t>{1, 0} : std::vector<size_t>{0}) {
      Diagnosis found = searches.run(index, count);
      if (found.changes.empty()) continue;
      result.push_back(std::move(found));
      return searches.work();
    }
    if (searches.size() <= 2) continue;
    for (size_t index = 0; index < each.size(); ++index)
      if (each[index].changes.empty()) each[index] = searches.run(index + 1, count);
    const bool all = std::all_of(each.begin(), each.end(), [](const Diagnosis& d) { return !d.changes.empty(); });
    if (!all && count < most) continue;
    result.insert(result.end(), each.begin(), each.end());
    return searches.work();
  }
  result.push_back({in_whole(layer, -1), {}, {}, searches.untried()});
  return searches.work();
}

// Only results of the last layer are known.
double diagnose_stack(const Problem& problem, const Comparison& comparison, double work, int most, const Poll& poll,
                      std::vector<Diagnosis>& result) {
  Searches searches(poll, work);
  for (int64_t layer = -1; layer < static_cast<int64_t>(problem.layers.size()); ++layer)
    searches.add(problem, {layer, -1}, comparison, {layer, -1});
  for (int count = 1; count <= most; ++count) {
    searches.begin(count);
    for (size_t index = 0; index < searches.size(); ++index) {
      Diagnosis found = searches.run(index, count);
      if (found.changes.empty()) continue;
      result.push_back(std::move(found));
      return searches.work();
    }
  }
  result.push_back({{}, {}, {}, searches.untried()});
  return searches.work();
}

}  // namespace

std::vector<Diagnosis> diagnose(const std::vector<Layer>& layers, const Recording& recording, double& budget, int most,
                                const Poll& poll) {
  const Problem problem{layers, recording};
  double work = budget * kWorkOfSecond;
  std::vector<Diagnosis> result;
  const bool all_known = layers.size() == 1 || recording.inputs.size() == layers.size();
  if (!all_known) {
    const Comparison comparison = compare(layers, recording);
    if (!comparison.agrees()) work = diagnose_stack(problem, comparison, work, most, poll, result);
  }
  // Layers that differ have equal shares of the work.
  std::vector<std::pair<int64_t, Comparison>> differing;
  for (int64_t layer = 0; all_known && layer < static_cast<int64_t>(layers.size()); ++layer) {
    const Problem part = part_of(problem, layer, -1);
    Comparison comparison = compare(part.layers, *part.recording);
    if (!comparison.agrees()) differing.emplace_back(layer, std::move(comparison));
  }
  for (size_t index = 0; index < differing.size(); ++index) {
    const auto& [layer, comparison] = differing[index];
    const double share = work / static_cast<double>(differing.size() - index);
    work += diagnose_layer(problem, layer, comparison, share, most, poll, result) - share;
  }
  budget = work / kWorkOfSecond;
  return result;
}

}  // namespace weft::verify
