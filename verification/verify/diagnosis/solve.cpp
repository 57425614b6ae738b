#include "verify/diagnosis/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "verify/compare.h"
#include "verify/sequence.h"
#include "verify/units.h"

namespace weft::verify {
namespace {

constexpr int kGrid = 64;
constexpr size_t kRoots = 4;

// The first step that differs, for one row, computed from the recorded states before it.
class Probe {
 public:
  /// Nothing where the step can't be computed by itself.
  static std::optional<Probe> of(const Problem& problem, ProductCache& cache) {
    if (problem.layers.size() != 1) return std::nullopt;
    const Comparison comparison =
        compare(problem.layers, *problem.recording, Bounds::kWorstCase, {.patience = 1, .cache = &cache});
    for (const Track& track : comparison.tracks) {
      if (!track.first || track.direction > 1) continue;
      Probe probe(problem, *track.first, cache);
      if (probe.recorded_.h.empty() || !probe.array_ || !probe.choose_unit()) return std::nullopt;
      return probe;
    }
    return std::nullopt;
  }

  /// The unit in question.
  Sample sample() const { return {{unit_}, row_}; }
  /// The result of `changed` for the number in question, minus the recorded one.
  double difference(const Problem& changed) const {
    const Layer& layer = changed.layers[0];
    if (!has_separate_units(layer)) return values_of(layer, *changed.recording).value[unit_] - recorded(unit_);
    return values_of(layer, *changed.recording, {unit_}).value[0] - recorded(unit_);
  }

 private:
  Probe(const Problem& problem, const Place& place, ProductCache& cache)
      : problem_(&problem),
        recorded_(problem.recording->layers[0][place.direction]),
        direction_(place.direction),
        turn_(place.turn),
        row_(place.row),
        cache_(&cache) {
    choose_quantity(place.quantity);
  }

  // Chooses the first quantity, in the order of computation, in which the step differs.
  void choose_quantity(const std::string& name) {
    const Kind kind = problem_->layers[0].cell.kind;
    if (name == "h") array_ = &recorded_.h, result_ = [](StepResult& step) { return std::move(step.h); };
    if (name == "c") array_ = &recorded_.c, result_ = [](StepResult& step) { return std::move(step.c); };
    if (kind == Kind::kRnn) return;
    for (int gate = 0; gate < gates_of(kind); ++gate) {
      if (name != gate_name(kind, gate)) continue;
      array_ = &recorded_.gates[gate];
      result_ = [gate](StepResult& step) { return std::move(step.gates[gate]); };
    }
  }

  int64_t index_of(int64_t turn) const {
    const Recording& recording = *problem_->recording;
    const bool reverse = problem_->layers[0].directions[direction_].reverse;
    return (reverse ? recording.steps - 1 - turn : turn) * recording.batch + row_;
  }
  double recorded(int64_t unit) const {
    const Recording& all = *problem_->recording;
    const int64_t columns = static_cast<int64_t>(array_->size()) / (all.steps * all.batch);
    return (*array_)[index_of(turn_) * columns + unit];
  }

  bool choose_unit() {
    const Values values = values_of(problem_->layers[0], *problem_->recording);
    double most = 1;
    for (int64_t unit = 0; unit < values.size(); ++unit) {
      const double ratio = std::abs(values.value[unit] - recorded(unit)) / std::max(values.error[unit], 1e-300);
      if (!(ratio > most)) continue;
      most = ratio;
      unit_ = unit;
    }
    return most > 1;
  }

  static std::vector<double> state(const std::vector<double>& array, int64_t index, int64_t columns) {
    return {array.begin() + index * columns, array.begin() + (index + 1) * columns};
  }

  // The results of the step: of all units, or of those with these numbers.
  Values values_of(const Layer& layer, const Recording& recording, const std::vector<int64_t>& units = {}) const {
    const bool all = units.empty();
    const auto chosen = [&](std::vector<double> state) {
      return exact(all ? std::move(state) : of_units(state, units));
    };
    const Layer part = all ? layer : with_units(layer, direction_, units);
    const size_t which = all ? direction_ : 0;
    const Direction& first = layer.directions[direction_];
    const bool has_cell = layer.cell.kind == Kind::kLstm, restart = !has_cell || !recorded_.c.empty();
    const std::vector<double>& x = recording.inputs.empty() ? recording.x : recording.inputs[0];
    std::vector<double> h = initial(first.h0, row_, layer.outputs());
    Values c = has_cell ? chosen(initial(first.c0, row_, layer.hidden())) : Values();
    for (int64_t turn = restart ? turn_ : 0; turn <= turn_; ++turn) {
      if (turn > 0) h = state(recorded_.h, index_of(turn - 1), layer.outputs());
      if (turn > 0 && has_cell && restart) c = chosen(state(recorded_.c, index_of(turn - 1), layer.hidden()));
      const Layer& now = part.at(turn, recording.steps);
      const Values xt = exact(state(x, index_of(turn), layer.inputs())), products = exact(h), blend = chosen(h);
      if (!all) cache_->count_units(now.directions[which]);
      StepResult next =
          step(now.cell, now.directions[which], recording.precision, {xt, products, blend, c, all ? cache_ : nullptr});
      if (turn == turn_) return result_(next);
      c = std::move(next.c);
    }
    internal_error("a step that isn't there");
  }

  const Problem* problem_;
  const Recorded& recorded_;
  int64_t direction_, turn_, row_;
  int64_t unit_ = 0;
  const std::vector<double>* array_ = nullptr;  // of the first quantity that differs
  std::function<Values(StepResult&)> result_;
  ProductCache* cache_;
};

Problem turned(const Problem& problem, const Dial& dial, double number) {
  Problem changed = problem;
  dial.turn(changed, number);
  return changed;
}

double number_at(const Dial& dial, int index) {
  const double part = static_cast<double>(index) / (kGrid - 1);
  if (!dial.by_factors) return dial.lowest + part * (dial.highest - dial.lowest);
  return dial.lowest * std::pow(dial.highest / dial.lowest, part);
}

// Finds a root between two numbers at which the differences have opposite signs: false position with the Illinois rule.
double root(const std::function<double(double)>& difference, double a, double b, double at_a, double at_b) {
  int side = 0;
  for (int turn = 0; turn < 80; ++turn) {
    double middle = turn % 8 == 7 ? (a + b) / 2 : (a * at_b - b * at_a) / (at_b - at_a);
    if (!(middle > std::min(a, b) && middle < std::max(a, b))) middle = (a + b) / 2;
    const double here = difference(middle);
    if (here == 0 || middle == a || middle == b) return middle;
    const bool with_a = (here > 0) == (at_a > 0);
    if (with_a) {
      a = middle, at_a = here;
      if (side == 1) at_b /= 2;
    } else {
      b = middle, at_b = here;
      if (side == -1) at_a /= 2;
    }
    side = with_a ? 1 : -1;
    if (std::abs(b - a) <= 1e-15 * std::abs(b)) break;
  }
  return std::abs(at_a) < std::abs(at_b) ? a : b;
}

std::vector<double> roots(const Problem& problem, const Dial& dial, const Probe& probe) {
  const auto difference = [&](double number) { return probe.difference(turned(problem, dial, number)); };
  std::vector<double> found;
  double before = number_at(dial, 0), at_before = difference(before);
  if (at_before == 0) found.push_back(before);
  for (int index = 1; index < kGrid && found.size() < kRoots; ++index) {
    const double number = number_at(dial, index), here = difference(number);
    if (here == 0)
      found.push_back(number);
    else if (at_before != 0 && std::isfinite(here) && std::isfinite(at_before) && (here > 0) != (at_before > 0))
      found.push_back(root(difference, before, number, at_before, here));
    before = number;
    at_before = here;
  }
  return found;
}

double rounded_to_digits(double number, int digits) { return std::stod(fmt::format("{:.{}g}", number, digits)); }

}  // namespace

std::optional<Change> solved(const Problem& given, const Dial& dial, ProductCache& cache) {
  Problem problem = given;
  for (Layer& layer : problem.layers)
    if (layer.has_moves()) layer = layer.settled();
  const std::optional<Probe> probe = Probe::of(problem, cache);
  if (!probe) return std::nullopt;
  const auto agrees = [&](double number) {
    const Problem changed = turned(problem, dial, number);
    const Haste haste{.patience = 1, .cache = &cache, .sample = probe->sample()};
    return compare(changed.layers, *changed.recording, Bounds::kWorstCase, haste).agrees();
  };
  // If a factor of 0 makes the term agree, the term is missing, which is another change with a root close to 0.
  if (dial.lowest < 0 && agrees(0)) return std::nullopt;
  for (const double exact_root : roots(problem, dial, *probe)) {
    for (const int digits : {1, 2, 3, 4, 5, 6, 17}) {
      const double number = rounded_to_digits(exact_root, digits);
      if (number == 0 || !agrees(number)) continue;
      Change change{dial.name, dial.detail(number),
                    [turn = dial.turn, number](Problem& changed) { turn(changed, number); }};
      change.in_pairs = InPairs::kNo;
      return change;
    }
  }
  return std::nullopt;
}

}  // namespace weft::verify
