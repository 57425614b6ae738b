#include "verify/compare.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "verify/against.h"
#include "verify/sampling.h"
#include "verify/step.h"

namespace weft::verify {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Numbers that are known.
Values known(std::vector<double> numbers, Bounds bounds) {
  if (bounds != Bounds::kNone) return exact(std::move(numbers));
  Values values(0, false);
  values.value = std::move(numbers);
  return values;
}

Sequence observed(const std::vector<double>& array, int64_t columns, const Precision& precision, Bounds bounds) {
  Sequence result{columns, known(array, bounds)};
  forgive_storing(result.numbers, precision);
  return result;
}

// The difference where there is one; infinite between a number and NaN.
double defect_of(double computed, double recorded, double ratio) {
  const double difference = std::abs(computed - recorded);
  return !std::isnan(difference) ? difference : ratio > 0 ? kInfinity : 0;
}

// A number and NaN are infinitely far apart.
double apart(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? kInfinity : difference;
}

// How much a number tells against the layers, which give another: never more than a mantissa.
double bits_of(double ratio) { return ratio > 1 ? std::min(std::log2(ratio), 40.0) : 0; }

void flip(Sequence& sequence, int64_t steps, int64_t batch) {
  for (int64_t step = 0; step < steps / 2; ++step) {
    for (int64_t row = 0; row < batch; ++row) {
      const int64_t early = step * batch + row, late = (steps - 1 - step) * batch + row;
      const Values kept = sequence.row(early);
      sequence.set_row(early, sequence.row(late));
      sequence.set_row(late, kept);
    }
  }
}

// One direction of one layer, all steps.
class Walk {
 public:
  Walk(const Layer& layer, int64_t layer_index, int64_t direction, const Recording& recording, const Sequence& input,
       Bounds bounds, const Haste& haste)
      : layer_(layer),
        index_(static_cast<size_t>(direction)),
        direction_(layer.directions[direction]),
        recording_(recording),
        recorded_(recording.layers[layer_index][direction]),
        input_(input),
        bounds_(bounds),
        haste_(haste) {
    track_.layer = layer_index;
    track_.direction = direction;
    track_.defect.assign(recording.steps, kNaN);
    track_.bound.assign(recording.steps, kNaN);
    output_.columns = layer.outputs();
    output_.numbers = Values(recording.steps * recording.batch * layer.outputs(), bounds != Bounds::kNone);
  }

  /// False where the comparison ended early.
  bool run() {
    for (int64_t row = 0; row < recording_.batch; ++row) {
      first_h_.push_back(known(initial(direction_.h0, row, layer_.outputs()), bounds_));
      first_c_.push_back(has_cell() ? known(initial(direction_.c0, row, layer_.hidden()), bounds_) : Values());
    }
    h_ = first_h_;
    c_ = first_c_;
    for (int64_t turn = 0; turn < recording_.steps; ++turn) {
      for (int64_t row = haste_.first_row(); row < haste_.end_row(recording_.batch); ++row) {
        take_step(turn, row);
        if (worst > haste_.patience || largest > haste_.most) return false;
      }
    }
    return true;
  }

  Track take_track() { return std::move(track_); }
  /// The recorded results where there are some, else the computed ones.
  Sequence take_output() {
    if (!recorded_.h.empty()) return observed(recorded_.h, layer_.outputs(), recording_.precision, bounds_);
    if (bounds_ == Bounds::kSampled)
      tighten(layer_, index_, recording_.precision, input_, recording_.steps, recording_.batch, output_);
    if (direction_.flipped) flip(output_, recording_.steps, recording_.batch);
    return std::move(output_);
  }
  double largest = 0;
  double worst = 0;
  double evidence = 0;

 private:
  bool has_cell() const { return layer_.cell.kind == Kind::kLstm; }
  int64_t time_of(int64_t turn) const { return direction_.reverse ? recording_.steps - 1 - turn : turn; }

  void take_step(int64_t turn, int64_t row) {
    const int64_t time = time_of(turn), index = time * recording_.batch + row;
    const Stale stale = turn == 0 ? Stale::kNone : layer_.cell.stale;
    const bool all = stale == Stale::kAll;
    const Values& products = all || stale == Stale::kProducts || stale == Stale::kHidden ? first_h_[row] : h_[row];
    const Values& blend = all || stale == Stale::kBlend || stale == Stale::kHidden ? first_h_[row] : h_[row];
    const Values& cell = all || stale == Stale::kCell ? first_c_[row] : c_[row];
    const Values x = input_.row(index);
    const Layer& now = layer_.at(turn, recording_.steps);
    StepResult next =
        step(now.cell, now.directions[index_], recording_.precision, {x, products, blend, cell, haste_.cache});
    compare_step(next, turn, row);
    output_.set_row(index, next.h);
    h_[row] = recorded_.h.empty() ? std::move(next.h) : recorded_state(recorded_.h, index, layer_.outputs());
    if (has_cell())
      c_[row] = recorded_.c.empty() ? std::move(next.c) : recorded_state(recorded_.c, index, layer_.hidden());
  }

  Values recorded_state(const std::vector<double>& array, int64_t index, int64_t columns) const {
    Values state = known({array.begin() + index * columns, array.begin() + (index + 1) * columns}, bounds_);
    forgive_storing(state, recording_.precision);
    return state;
  }

  // Compares quantities in the order in which a step computes them.
  void compare_step(const StepResult& next, int64_t turn, int64_t row) {
    const int64_t index = time_of(turn) * recording_.batch + row;
    const int gates = layer_.cell.kind == Kind::kRnn ? 0 : gates_of(layer_.cell.kind);
    const int before_cell = has_cell() ? 3 : gates;
    for (int gate = 0; gate < before_cell; ++gate) compare_gate(next, gate, turn, row, index);
    if (has_cell()) {
      compare_numbers("c", next.c, recorded_.c, turn, row, index);
      compare_gate(next, 3, turn, row, index);
    }
    compare_numbers("h", next.h, recorded_.h, turn, row, index);
    if (turn + 1 < recording_.steps) return;
    compare_numbers("hn", next.h, recorded_.hn, turn, row, row);
    if (has_cell()) compare_numbers("cn", next.c, recorded_.cn, turn, row, row);
  }

  void compare_gate(const StepResult& next, int gate, int64_t turn, int64_t row, int64_t index) {
    compare_numbers(gate_name(layer_.cell.kind, gate), next.gates[gate], recorded_.gates[gate], turn, row, index);
  }

  void compare_numbers(const std::string& quantity, const Values& computed, const std::vector<double>& array,
                       int64_t turn, int64_t row, int64_t index) {
    if (array.empty()) return;
    if (!computed.bounded) return compare_alone(computed, array, index);
    const int64_t time = time_of(turn);
    for (int64_t unit = 0; unit < computed.size(); ++unit) {
      const double recorded = array[index * computed.size() + unit];
      const double bound = bound_of(computed.error[unit], recording_.precision);
      const double ratio = against(computed.value[unit], recorded, bound);
      const double defect = defect_of(computed.value[unit], recorded, ratio);
      largest = std::max(largest, defect);
      worst = std::max(worst, ratio);
      evidence += bits_of(ratio);
      note(time, defect, bound, ratio);
      if (ratio > 1 && !track_.first) {
        track_.first = Place{track_.layer, track_.direction,     time,     turn, quantity, row,
                             unit,         computed.value[unit], recorded, bound};
      }
    }
  }

  // Numbers without bounds.
  void compare_alone(const Values& computed, const std::vector<double>& array, int64_t index) {
    for (int64_t unit = 0; unit < computed.size(); ++unit)
      largest = std::max(largest, apart(computed.value[unit], array[index * computed.size() + unit]));
  }

  // For each step the number that is furthest off against its bound.
  void note(int64_t time, double defect, double bound, double ratio) {
    if (time == time_at_ && ratio <= ratio_at_) return;
    track_.defect[time] = defect;
    track_.bound[time] = bound;
    time_at_ = time;
    ratio_at_ = ratio;
  }

  const Layer& layer_;
  const size_t index_;  // index of the direction
  const Direction& direction_;
  const Recording& recording_;
  const Recorded& recorded_;
  const Sequence& input_;
  const Bounds bounds_;
  const Haste haste_;
  Track track_;
  Sequence output_;
  std::vector<Values> first_h_, first_c_, h_, c_;  // by row
  int64_t time_at_ = -1;                           // the step of `ratio_at_`
  double ratio_at_ = 0;
};

// Merges the directions' results. A merged number is a sum or product of two numbers; its bound follows from theirs.
Sequence merge_sequences(Merge merge, std::vector<Sequence> parts, const Precision& precision) {
  if (parts.size() == 1) return std::move(parts[0]);
  const int64_t columns = parts[0].columns, rows = parts[0].numbers.size() / std::max<int64_t>(columns, 1);
  Sequence result{merge == Merge::kConcat ? 2 * columns : columns, {}};
  const Values &a = parts[0].numbers, &b = parts[1].numbers;
  result.numbers.bounded = a.bounded;
  result.numbers.value = merged(merge, {&a.value, &b.value}, rows, columns);
  if (!a.bounded) return result;
  if (merge == Merge::kConcat) {
    result.numbers.error = merged(merge, {&a.error, &b.error}, rows, columns);
    return result;
  }
  for (int64_t index = 0; index < a.size(); ++index) {
    const double x = std::abs(a.value[index]), y = std::abs(b.value[index]);
    const double ex = a.error[index], ey = b.error[index];
    const double error = merge == Merge::kMul ? x * ey + y * ex + ex * ey : ex + ey;
    result.numbers.error.push_back(with_rounding(error, 2, merge == Merge::kMul ? x * y : x + y, precision));
  }
  return result;
}

// The last layer's merged result, where only that was recorded.
Track compare_merged(const Sequence& computed, const Recording& recording, int64_t layer, const Haste& haste,
                     Comparison& result) {
  Track track{layer, 2, std::vector<double>(recording.steps, 0), std::vector<double>(recording.steps, 0), {}};
  std::vector<double> ratios(recording.steps, -1);
  for (int64_t index = 0; index < computed.numbers.size(); ++index) {
    const int64_t unit = index % computed.columns, row = index / computed.columns % recording.batch;
    if (row < haste.first_row() || row >= haste.end_row(recording.batch)) continue;
    const int64_t time = index / computed.columns / recording.batch;
    const double value = computed.numbers.value[index], recorded = recording.merged[index];
    if (!computed.numbers.bounded) {
      result.largest = std::max(result.largest, apart(value, recorded));
      continue;
    }
    const double bound = 2 * computed.numbers.error[index], ratio = against(value, recorded, bound);
    const double defect = defect_of(value, recorded, ratio);
    result.largest = std::max(result.largest, defect);
    result.worst = std::max(result.worst, ratio);
    result.evidence += bits_of(ratio);
    if (ratio > ratios[time]) {
      ratios[time] = ratio;
      track.defect[time] = defect;
      track.bound[time] = bound;
    }
    if (ratio > 1 && !track.first) track.first = Place{layer, 2, time, time, "y", row, unit, value, recorded, bound};
  }
  return track;
}

void add_walk(const Walk& walk, Comparison& result) {
  result.largest = std::max(result.largest, walk.largest);
  result.worst = std::max(result.worst, walk.worst);
  result.evidence += walk.evidence;
}

// The results of one layer's directions; nothing where the comparison ended early.
std::optional<std::vector<Sequence>> walk_directions(const Layer& layer, int64_t index, const Recording& recording,
                                                     const Sequence& input, Bounds bounds, const Haste& haste,
                                                     Comparison& result) {
  const auto count = static_cast<int64_t>(layer.directions.size());
  for (int64_t direction = 0; direction < count && bounds != Bounds::kNone; ++direction) {
    if (!differs_in(haste.sample, layer, index, direction, recording, input, haste.cache)) continue;
    result.worst = kInfinity;
    return std::nullopt;
  }
  std::optional<Layer> settled;
  if (layer.has_moves()) settled = layer.settled();
  if (settled && haste.cache) haste.cache->count_moves(*settled);
  std::vector<Sequence> outputs;
  for (int64_t direction = 0; direction < count; ++direction) {
    Walk walk(settled ? *settled : layer, index, direction, recording, input, bounds, haste);
    const bool finished = walk.run();
    add_walk(walk, result);
    outputs.push_back(walk.take_output());
    result.tracks.push_back(walk.take_track());
    if (!finished) return std::nullopt;
  }
  return outputs;
}

// The results of the last layer; nothing where the comparison ended early.
std::optional<Sequence> walk_layers(const std::vector<Layer>& layers, const Recording& recording, Bounds bounds,
                                    const Haste& haste, Comparison& result) {
  const LayerCache::Run* below = haste.below ? haste.below->find(layers, bounds, haste.row) : nullptr;
  if (below) result = below->found;
  Sequence input =
      below ? below->output : observed(recording.x, layers[0].inputs(), Precision::of(DType::kF64), bounds);
  for (size_t index = below ? below->count : 0; index < layers.size(); ++index) {
    const Layer& layer = layers[index];
    if (index < recording.inputs.size() && !recording.inputs[index].empty())
      input = observed(recording.inputs[index], layer.inputs(), recording.precision, bounds);
    auto outputs = walk_directions(layer, static_cast<int64_t>(index), recording, input, bounds, haste, result);
    if (!outputs) return std::nullopt;
    if (layer.exchanged && outputs->size() == 2) std::swap((*outputs)[0], (*outputs)[1]);
    input = merge_sequences(layer.merge, std::move(*outputs), recording.precision);
    if (haste.below) haste.below->keep(layers, {index + 1, bounds, haste.row, input, result});
  }
  return input;
}

}  // namespace

// Layers that are the same, from the first on.
size_t LayerCache::common(const std::vector<Layer>& layers, size_t most) const {
  size_t count = 0;
  while (count < most && layers[count] == (*layers_)[count]) ++count;
  return count;
}

const LayerCache::Run* LayerCache::find(const std::vector<Layer>& layers, Bounds bounds, int64_t row) const {
  if (runs_.empty()) return nullptr;
  const size_t count = common(layers, layers.size() - 1);
  const Run* best = nullptr;
  for (const Run& run : runs_)
    if (run.count <= count && run.bounds == bounds && run.row == row && (!best || run.count > best->count)) best = &run;
  return best;
}

void LayerCache::keep(const std::vector<Layer>& layers, Run run) {
  const auto same = [&](const Run& other) {
    return other.count == run.count && other.bounds == run.bounds && other.row == run.row;
  };
  if (run.count == layers.size() || std::any_of(runs_.begin(), runs_.end(), same)) return;
  if (common(layers, run.count) == run.count) runs_.push_back(std::move(run));
}

Comparison compare(const std::vector<Layer>& layers, const Recording& recording, Bounds bounds, const Haste& haste) {
  Comparison result;
  const std::optional<Sequence> last = walk_layers(layers, recording, bounds, haste, result);
  if (last && !recording.merged.empty() && recording.layers.back()[0].h.empty()) {
    Track merged = compare_merged(*last, recording, static_cast<int64_t>(layers.size()) - 1, haste, result);
    result.tracks.push_back(std::move(merged));
  }
  return result;
}

Values outputs(const std::vector<Layer>& layers, const std::vector<double>& x, int64_t steps, int64_t batch,
               const Precision& precision) {
  Recording nothing;
  nothing.steps = steps;
  nothing.batch = batch;
  nothing.precision = precision;
  nothing.x = x;
  for (const Layer& layer : layers) nothing.layers.emplace_back(layer.directions.size());
  Comparison unused;
  return walk_layers(layers, nothing, Bounds::kSampled, {}, unused)->numbers;
}

namespace {

Drift drift_between(const std::vector<double>& mine, const std::vector<double>& theirs, int64_t steps, int64_t batch,
                    int64_t columns) {
  Drift result{std::vector<double>(steps, theirs.empty() ? kNaN : 0)};
  double most = 0;
  for (int64_t index = 0; index < static_cast<int64_t>(theirs.size()); ++index) {
    const int64_t step = index / columns / batch;
    const double difference = apart(mine[index], theirs[index]);
    result.steps[step] = std::max(result.steps[step], difference);
    if (difference <= most) continue;
    most = difference;
    result.step = step;
    result.row = index / columns % batch;
    result.unit = index % columns;
  }
  return result;
}

}  // namespace

std::vector<std::vector<Drift>> drift(const std::vector<Layer>& layers, const Recording& recording) {
  const Recording own = record(layers, recording.x, recording.steps, recording.batch);
  std::vector<std::vector<Drift>> result(layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (size_t direction = 0; direction < layers[layer].directions.size(); ++direction)
      result[layer].push_back(drift_between(own.layers[layer][direction].h, recording.layers[layer][direction].h,
                                            recording.steps, recording.batch, layers[layer].outputs()));
  return result;
}

}  // namespace weft::verify
