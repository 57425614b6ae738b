#include "verify/search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace weft::verify {
namespace {

// The search's budgets in multiply-adds, a few seconds: sets beyond them aren't tried.
constexpr double kPairBudget = 3e9;
constexpr double kTripleBudget = 0.8e9;
// The cost of making a set of changes, in multiply-adds: for bookkeeping, and for each number of a vector.
constexpr double kOverhead = 3e3, kOfUnit = 10;

// How many values of a number are tried to find the one that fits.
constexpr double kTrials = 80;

constexpr double kMuchSmaller = 0.25;
// How many bits more the recording must tell than the choice among the sets takes.
constexpr double kSpareBits = 10;

struct Found {
  Changes changes;
  double worst;  // against the bound of the recording's own precision
};

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

bool fits(const Problem& problem) {
  for (const Layer& layer : problem.layers)
    for (const Direction& direction : layer.directions)
      for (const Matrix* state : {&direction.h0, &direction.c0})
        if (state->rows > 1 && state->rows != problem.recording->batch) return false;
  return true;
}

class Search {
 public:
  Search(const Problem& problem, const Scope& scope, const Poll& poll, double share)
      : problem_(problem), scope_(scope), poll_(poll), known_(known_changes(problem, scope)), share_(share) {
    const Comparison comparison = compare(problem.layers, *problem.recording);
    defect_ = comparison.largest;
    evidence_ = comparison.evidence;
    for (const Track& track : comparison.tracks)
      if (track.first) row_ = track.first->row;
  }

  Diagnosis singles() {
    for (const Change& change : known_) {
      poll_();
      if (!change.solve || says_more_than(40)) explains(problem_, {&change});
    }
    return best();
  }

  Diagnosis pairs() {
    if (!says_more_than(2 * std::log2(known_.size()))) return best();
    budget_ = share_ * kPairBudget;
    try_pairs(InPairs::kYes);
    budget_ = share_ * kPairBudget / 8;
    if (found_.empty()) try_pairs(InPairs::kLate);
    return best();
  }

  // Ordered by the rarest of the three changes, so that a limited budget leaves out sets with rare changes.
  Diagnosis triples() {
    if (!says_more_than(3 * std::log2(known_.size()))) return best();
    budget_ = share_ * kTripleBudget;
    const std::vector<const Change*> usual = usual_changes();
    for (size_t last = 2; last < usual.size(); ++last) {
      const Problem with_last = made(*usual[last], problem_);
      for (size_t first = 0; first < last; ++first) {
        poll_();
        if (usual[first]->name == usual[last]->name) continue;
        const Problem with_two = made(*usual[first], with_last);
        for (size_t second = first + 1; second < last; ++second) {
          if (usual[second]->name == usual[first]->name || usual[second]->name == usual[last]->name) continue;
          if (spend(work_of(*usual[second]))) return best();
          if (compare_quickly(made(*usual[second], with_two)))
            explain_by_three(*usual[first], *usual[second], *usual[last]);
        }
      }
    }
    return best();
  }

 private:
  // The recording must tell the sets apart: with few values some set of random numbers would agree.
  bool says_more_than(double bits) const { return evidence_ >= bits + kSpareBits; }

  static Problem made(const Change& change, Problem problem) {
    change.apply(problem);
    return problem;
  }

  double work_of(const Change& change) const {
    if (change.solve) return kTrials * overhead_of(problem_);
    return change.rearranges ? 4 * weights_of(problem_) : 0;
  }

  void try_pairs(InPairs rarest) {
    for (size_t first = 0; first < known_.size(); ++first) {
      poll_();
      for (size_t second = first + 1; second < known_.size(); ++second) {
        const Change &a = known_[first], &b = known_[second];
        const bool is_late = a.in_pairs == InPairs::kLate || b.in_pairs == InPairs::kLate;
        if (a.name == b.name || a.in_pairs == InPairs::kNo || b.in_pairs == InPairs::kNo || (a.solve && b.solve) ||
            (a.steps != Steps::kAll && b.steps != Steps::kAll) || is_late != (rarest == InPairs::kLate))
          continue;
        if (spend(work_of(a) + work_of(b))) return;
        if (explains(problem_, {&a, &b})) continue;
        if (a.rearranges && b.rearranges) explains(problem_, {&b, &a});
      }
    }
  }

  // Orders of gates last: they are many, and take the most time.
  std::vector<const Change*> usual_changes() const {
    std::vector<const Change*> usual;
    for (const Change& change : known_)
      if (change.in_pairs == InPairs::kYes && !change.solve) usual.push_back(&change);
    std::stable_partition(usual.begin(), usual.end(), [](const Change* each) { return each->name != "gate_order"; });
    return usual;
  }

  // Tries the three in the order of the catalogue, and in the order in which they were found only if that doesn't
  // explain the recording.
  void explain_by_three(const Change& first, const Change& second, const Change& last) {
    std::vector<const Change*> three{&first, &second, &last};
    std::sort(three.begin(), three.end());  // all are elements of `known_`
    if (!explains(problem_, three)) explains(problem_, {&last, &first, &second});
  }

  // True when the budget is used up.
  bool spend(double more) {
    budget_ -= overhead_of(problem_) + more + std::exchange(cache_.work, 0);
    return budget_ < 0;
  }

  // Compares with the bounds of the worst case, up to the first number beyond its bound.
  bool compare_quickly(const Problem& changed) {
    if (!fits(changed)) return false;
    const Recording& recording = *changed.recording;
    // Checking the first row that differs rules out most sets.
    if (recording.batch > 1 &&
        !compare(changed.layers, recording, Bounds::kWorstCase, {1, std::min(row_, recording.batch - 1), &cache_})
             .agrees())
      return false;
    const Comparison comparison = compare(changed.layers, recording, Bounds::kWorstCase, {1, -1, &cache_});
    return comparison.agrees() && makes_smaller(changed, comparison);
  }

  // A change that explains the defects must make them much smaller. Being within bounds isn't enough, since bounds are
  // very wide where unrecorded layers amplify rounding. This doesn't hold for a coarser precision, which only rounds
  // numbers.
  bool makes_smaller(const Problem& changed, const Comparison& comparison) const {
    if (changed.recording->precision.unit != problem_.recording->precision.unit) return true;
    return comparison.largest <= kMuchSmaller * defect_;
  }

  bool explains(const Problem& problem, const std::vector<const Change*>& changes) {
    Problem changed = problem;
    Changes done;
    for (const Change* change : changes) {
      std::optional<Change> numbered;
      if (change->solve) {
        numbered = change->solve(changed);
        if (!numbered) return false;
        change = &*numbered;
      }
      change->apply(changed);
      done.push_back(*change);
    }
    // The cheap bounds rule out most sets; the others are compared with tighter bounds.
    if (!compare_quickly(changed)) return false;
    const Comparison comparison = compare(changed.layers, *changed.recording);
    if (!comparison.agrees()) return false;
    const double coarser = changed.recording->precision.unit / problem.recording->precision.unit;
    found_.push_back({std::move(done), comparison.worst * coarser});
    return true;
  }

  bool is_known(const Changes& changes, const std::vector<Changes>& others) const {
    return std::any_of(others.begin(), others.end(), [&](const Changes& each) {
      return std::equal(each.begin(), each.end(), changes.begin(), changes.end(),
                        [](const Change& a, const Change& b) { return a.name == b.name && a.detail == b.detail; });
    });
  }

  // The best first: sets within rounding before sets that agree only in a coarser precision; much closer sets before
  // less close ones, which counts where unrecorded layers have made the bounds wide; then in the order of the
  // catalogue.
  Diagnosis best() {
    Diagnosis result{scope_, {}, {}};
    if (found_.empty()) return result;
    const auto closest = std::min_element(found_.begin(), found_.end(),
                                          [](const Found& a, const Found& b) { return a.worst < b.worst; });
    const double enough = std::max(10 * closest->worst, 1e-3);
    std::vector<Changes> sets;
    for (Found& each : found_)
      if (each.worst <= enough && !is_known(each.changes, sets)) sets.push_back(std::move(each.changes));
    result.changes = std::move(sets.front());
    result.also.assign(std::make_move_iterator(sets.begin() + 1), std::make_move_iterator(sets.end()));
    return result;
  }

  const Problem& problem_;
  const Scope scope_;
  const Poll& poll_;
  const std::vector<Change> known_;
  const double share_;
  ProductCache cache_;
  std::vector<Found> found_;
  double defect_ = 0, evidence_ = 0, budget_ = 0;
  int64_t row_ = 0;  // a row that differs
};

}  // namespace

Diagnosis search(const Problem& problem, const Scope& scope, int count, const Poll& poll, double share) {
  Search search(problem, scope, poll, share);
  return count == 1 ? search.singles() : count == 2 ? search.pairs() : search.triples();
}

}  // namespace weft::verify
