#include "verify/recording.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "verify/sequence.h"
#include "verify/step.h"

namespace weft::verify {
namespace {

void store(std::vector<double>& array, const Values& values, int64_t index) {
  std::copy(values.value.begin(), values.value.end(), array.begin() + index * values.size());
}

Recorded record_direction(const Layer& layer, size_t which, const std::vector<double>& x, int64_t steps,
                          int64_t batch) {
  const Direction& direction = layer.directions[which];
  const int64_t hidden = layer.hidden(), outputs = layer.outputs(), inputs = layer.inputs();
  const bool has_cell = layer.cell.kind == Kind::kLstm;
  const int gates = layer.cell.kind == Kind::kRnn ? 0 : gates_of(layer.cell.kind);
  const Precision precision = Precision::of(DType::kF64);
  Recorded result;
  result.h.resize(steps * batch * outputs);
  if (has_cell) result.c.resize(steps * batch * hidden);
  for (int gate = 0; gate < gates; ++gate) result.gates[gate].resize(steps * batch * hidden);
  for (int64_t row = 0; row < batch; ++row) {
    const Values first_h = exact(initial(direction.h0, row, outputs)),
                 first_c = exact(initial(direction.c0, row, hidden));
    Values h = first_h, c = has_cell ? first_c : Values();
    for (int64_t turn = 0; turn < steps; ++turn) {
      const int64_t at = direction.reverse ? steps - 1 - turn : turn;
      const Values xt = exact(row_of(x, at, row, batch, inputs));
      const Layer& now = layer.at(turn, steps);
      StepResult next = step(now.cell, now.directions[which], precision, {xt, h, h, c});
      const int64_t index = at * batch + row;
      for (int gate = 0; gate < gates; ++gate) store(result.gates[gate], next.gates[gate], index);
      store(result.h, next.h, index);
      if (has_cell) store(result.c, next.c, index);
      h = exact(std::move(next.h.value));
      if (has_cell) c = exact(std::move(next.c.value));
    }
    result.hn.insert(result.hn.end(), h.value.begin(), h.value.end());
    if (has_cell) result.cn.insert(result.cn.end(), c.value.begin(), c.value.end());
  }
  return result;
}

}  // namespace

std::vector<double> initial(const Matrix& state, int64_t row, int64_t size) {
  if (state.empty()) return std::vector<double>(size);
  const double* values = state.row(state.rows == 1 ? 0 : row);
  return {values, values + state.columns};
}

std::vector<double> row_of(const std::vector<double>& array, int64_t step, int64_t row, int64_t batch,
                           int64_t columns) {
  const auto first = array.begin() + (step * batch + row) * columns;
  return {first, first + columns};
}

std::vector<double> merged(Merge merge, const std::vector<const std::vector<double>*>& parts, int64_t rows,
                           int64_t columns) {
  if (parts.size() == 1) return *parts[0];
  const std::vector<double>&a = *parts[0], &b = *parts[1];
  std::vector<double> result;
  result.reserve(rows * columns * (merge == Merge::kConcat ? 2 : 1));
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = row * columns, last = first + columns;
    if (merge == Merge::kConcat) {
      result.insert(result.end(), a.begin() + first, a.begin() + last);
      result.insert(result.end(), b.begin() + first, b.begin() + last);
      continue;
    }
    for (auto at = first; at < last; ++at)
      result.push_back(merge == Merge::kMul   ? a[at] * b[at]
                       : merge == Merge::kSum ? a[at] + b[at]
                                              : (a[at] + b[at]) / 2);
  }
  return result;
}

Recording record(const std::vector<Layer>& layers, std::vector<double> x, int64_t steps, int64_t batch) {
  check(layers);
  weft::check(static_cast<int64_t>(x.size()) == steps * batch * layers[0].inputs(),
              "the input should have {} x {} x {} elements, got {}", steps, batch, layers[0].inputs(), x.size());
  Recording result;
  result.steps = steps;
  result.batch = batch;
  result.own = true;
  result.x = x;
  for (const Layer& each : layers) {
    const Layer layer = each.settled();
    std::vector<Recorded> directions;
    for (size_t direction = 0; direction < layer.directions.size(); ++direction)
      directions.push_back(record_direction(layer, direction, x, steps, batch));
    std::vector<const std::vector<double>*> parts;
    for (const Recorded& direction : directions) parts.push_back(&direction.h);
    result.inputs.push_back(std::move(x));
    x = merged(layer.merge, parts, steps * batch, layer.outputs());
    result.layers.push_back(std::move(directions));
  }
  return result;
}

}  // namespace weft::verify
