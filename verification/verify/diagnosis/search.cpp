#include "verify/diagnosis/search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace weft::verify {
namespace {

// The cost of making a set of changes, in multiply-adds: for bookkeeping, and for each number of a vector.
constexpr double kOverhead = 3e3, kOfUnit = 10;

// How many values of a number are tried to find the one that fits.
constexpr double kTrials = 80;

// The part of the work on pairs that is for the usual ones.
constexpr double kUsualPairs = 8.0 / 9;

// The number of units compared before all others, in the row that differs first.
constexpr int64_t kSampled = 2;

constexpr double kMuchSmaller = 0.25;
// How many more bits the recording must have than it takes to choose one of the sets.
constexpr double kSpareBits = 10;

double weights_of(const Problem& problem) {
  double total = 0;
  for (const Layer& layer : problem.layers)
    for (const Direction& direction : layer.directions)
      total += static_cast<double>(direction.weight_x.values->size() + direction.weight_h.values->size());
  return total;
}

double overhead_of(const Problem& problem) {
  double total = kOverhead;
  for (const Layer& layer : problem.layers)
    total += kOfUnit * static_cast<double>(layer.directions[0].weight_h.rows + layer.inputs());
  return total;
}

// The work of a comparison with sampled bounds, where states aren't recorded.
double work_of_bounds(const Problem& problem) {
  constexpr double kRuns = 7;
  return kRuns * weights_of(problem) * static_cast<double>(problem.recording->steps * problem.recording->batch);
}

bool fits(const Problem& problem) {
  for (const Layer& layer : problem.layers)
    for (const Direction& direction : layer.directions)
      for (const Matrix* state : {&direction.h0, &direction.c0})
        if (state->rows > 1 && state->rows != problem.recording->batch) return false;
  return true;
}

bool all_recorded(const Problem& problem) {
  for (const auto& layer : problem.recording->layers)
    for (const Recorded& direction : layer)
      if (direction.h.empty()) return false;
  return true;
}

Sample sample_of(const Problem& problem, const Place& place) {
  const Layer& layer = problem.layers[place.layer];
  const int64_t units = layer.hidden();
  Sample sample{{}, place.row};
  for (int64_t index = 0; index < std::min(kSampled, units); ++index)
    sample.units.push_back((place.unit + index * units / kSampled) % units);
  std::sort(sample.units.begin(), sample.units.end());
  sample.units.erase(std::unique(sample.units.begin(), sample.units.end()), sample.units.end());
  return sample;
}

Problem made(const Change& change, Problem problem) {
  change.apply(problem);
  return problem;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_among(const Changes& changes, const std::vector<Changes>& others) {
  return std::any_of(others.begin(), others.end(), [&](const Changes& each) {
    return std::equal(each.begin(), each.end(), changes.begin(), changes.end(),
                      [](const Change& a, const Change& b) { return a.name == b.name && a.detail == b.detail; });
  });
}

}  // namespace

Search::Search(const Problem& problem, const Scope& scope, const Comparison& comparison, const Poll& poll)
    : problem_(problem),
      scope_(scope),
      poll_(poll),
      known_(known_changes(problem, scope)),
      overhead_(overhead_of(problem)),
      is_known_(all_recorded(problem)),
      below_(problem.layers),
      defect_(comparison.largest),
      evidence_(comparison.evidence) {
  for (const Track& track : comparison.tracks) {
    if (!track.first) continue;
    sample_ = sample_of(problem, *track.first);
    if (track.direction > 1) sample_.units.clear();
  }
}

Diagnosis Search::sets_of(int count, double& allowed) {
  untried_ = {.count = count};
  allowed_ = allowed;
  if (count == 1) {
    try_singles();
  } else if (says_more_than(count * std::log2(known_.size()))) {
    count == 2 ? try_pairs(InPairs::kYes) : try_triples();
    if (count == 2 && found_.empty()) try_pairs(InPairs::kLate);
  }
  allowed = allowed_;
  return best();
}

void Search::try_singles() {
  for (const Change& change : known_) {
    poll_();
    if (change.solve && !says_more_than(40)) continue;
    if (may_try(work_of(change), change)) explains({&change});
  }
}

void Search::try_pairs(InPairs rarest) {
  const double for_late = rarest == InPairs::kYes ? (1 - kUsualPairs) * allowed_ : 0;
  allowed_ -= for_late;
  for (size_t first = 0; first < known_.size(); ++first) {
    poll_();
    for (size_t second = first + 1; second < known_.size(); ++second) {
      const Change &a = known_[first], &b = known_[second];
      const bool is_late = a.in_pairs == InPairs::kLate || b.in_pairs == InPairs::kLate;
      if (a.name == b.name || a.in_pairs == InPairs::kNo || b.in_pairs == InPairs::kNo || (a.solve && b.solve) ||
          (a.steps != Steps::kAll && b.steps != Steps::kAll) || is_late != (rarest == InPairs::kLate))
        continue;
      if (!may_try(work_of(a) + work_of(b), a)) continue;
      if (explains({&a, &b})) continue;
      if (a.rearranges && b.rearranges) explains({&b, &a});
    }
  }
  allowed_ += for_late;
}

// By the rarest of the three changes, so that a budget leaves out sets with rare ones.
void Search::try_triples() {
  const std::vector<const Change*> usual = usual_changes();
  for (size_t last = 2; last < usual.size(); ++last) {
    std::optional<Problem> with_last;
    for (size_t first = 0; first < last; ++first) {
      poll_();
      if (usual[first]->name == usual[last]->name) continue;
      std::optional<Problem> with_two;
      for (size_t second = first + 1; second < last; ++second) {
        if (usual[second]->name == usual[first]->name || usual[second]->name == usual[last]->name) continue;
        if (!may_try(work_of(*usual[second]), *usual[last])) continue;
        if (!with_last) with_last = made(*usual[last], problem_);
        if (!with_two) with_two = made(*usual[first], *with_last);
        if (compare_quickly(made(*usual[second], *with_two)))
          explain_by_three(*usual[first], *usual[second], *usual[last]);
      }
    }
  }
}

// The recording must tell the sets apart: with few values some set of random numbers would agree.
bool Search::says_more_than(double bits) const { return evidence_ >= bits + kSpareBits; }

double Search::work_of(const Change& change) const { return change.solve ? kTrials * overhead_ : 0; }

// Orders of gates last: they are many.
std::vector<const Change*> Search::usual_changes() const {
  std::vector<const Change*> usual;
  for (const Change& change : known_)
    if (change.in_pairs == InPairs::kYes && !change.solve) usual.push_back(&change);
  std::stable_partition(usual.begin(), usual.end(), [](const Change* each) { return each->name != "gate_order"; });
  return usual;
}

// Tries the three changes in the order of the catalogue. If they don't explain the difference in this order, tries them
// in the order in which they were found.
void Search::explain_by_three(const Change& first, const Change& second, const Change& last) {
  std::vector<const Change*> three{&first, &second, &last};
  std::sort(three.begin(), three.end());  // all are elements of `known_`
  if (!explains(three)) explains({&last, &first, &second});
}

// Counts a set, with its overhead and so much work more: as tried or, where the budget is used up, as left out.
// `change`: its name is given for all sets that are left out with it.
bool Search::may_try(double more, const Change& change) {
  ++untried_.all;
  allowed_ -= std::exchange(cache_.work, 0);
  if (allowed_ <= 0) {
    ++untried_.left;
    if (!contains(untried_.names, change.name)) untried_.names.push_back(change.name);
    return false;
  }
  allowed_ -= overhead_ + more;
  return true;
}

// Compares with the bounds of the worst case, up to the first number beyond its bound.
bool Search::compare_quickly(const Problem& changed) {
  if (!fits(changed)) return false;
  const Recording& recording = *changed.recording;
  Haste haste{.cache = &cache_, .below = changed.recording.is(problem_.recording) ? &below_ : nullptr};
  haste.row = recording.batch > 1 ? std::min(sample_.row, recording.batch - 1) : -1;
  // Where states run on from the layers' own values a set can be ruled out by nothing sooner than numbers at the end of
  // it, so that these are computed without bounds before all else.
  const bool is_as_precise = recording.precision.unit == problem_.recording->precision.unit;
  if (!is_known_ && is_as_precise) {
    haste.most = kMuchSmaller * defect_;
    if (compare(changed.layers, recording, Bounds::kNone, haste).largest > haste.most) return false;
  }
  haste.patience = 1;
  haste.sample = {sample_.units, haste.first_row()};
  // The row that differs first rules out most sets.
  if (haste.row >= 0 && !compare(changed.layers, recording, Bounds::kWorstCase, haste).agrees()) return false;
  if (haste.row >= 0) haste.sample = {};
  haste.row = -1;
  haste.most = std::numeric_limits<double>::infinity();
  const Comparison comparison = compare(changed.layers, recording, Bounds::kWorstCase, haste);
  return comparison.agrees() && makes_smaller(changed, comparison);
}

// A change that explains the defects makes them much smaller: bounds can be wide enough to hold anything where
// unrecorded layers amplify rounding. A coarser precision is no such change: the numbers that it rounds stay where they
// are.
bool Search::makes_smaller(const Problem& changed, const Comparison& comparison) const {
  if (changed.recording->precision.unit != problem_.recording->precision.unit) return true;
  return comparison.largest <= kMuchSmaller * defect_;
}

bool Search::explains(const std::vector<const Change*>& changes) {
  Problem changed = problem_;
  Changes done;
  for (const Change* change : changes) {
    std::optional<Change> numbered;
    if (change->solve) {
      numbered = change->solve(changed, cache_);
      if (!numbered) return false;
      change = &*numbered;
    }
    change->apply(changed);
    done.push_back(*change);
  }
  // The cheap bounds rule out most sets; the sets that they let pass are compared more closely.
  if (!compare_quickly(changed)) return false;
  cache_.work += work_of_bounds(changed);
  const Comparison comparison = compare(changed.layers, *changed.recording);
  if (!comparison.agrees()) return false;
  const double coarser = changed.recording->precision.unit / problem_.recording->precision.unit;
  found_.push_back({std::move(done), comparison.worst * coarser});
  return true;
}

// The best first: sets within rounding before sets that agree only in a coarser precision; much closer sets before less
// close ones, which counts where unrecorded layers have made the bounds wide; then in the order of the catalogue.
Diagnosis Search::best() const {
  Diagnosis result{scope_, {}, {}, {}};
  if (untried_.left > 0) result.untried.push_back(untried_);
  if (found_.empty()) return result;
  const auto closest =
      std::min_element(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.worst < b.worst; });
  const double enough = std::max(10 * closest->worst, 1e-3);
  std::vector<Changes> sets;
  for (const Found& each : found_)
    if (each.worst <= enough && !is_among(each.changes, sets)) sets.push_back(each.changes);
  result.changes = std::move(sets.front());
  result.also.assign(std::make_move_iterator(sets.begin() + 1), std::make_move_iterator(sets.end()));
  return result;
}

}  // namespace weft::verify
