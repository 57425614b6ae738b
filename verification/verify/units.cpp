#include "verify/units.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "verify/against.h"

namespace weft::verify {
namespace {

Direction with_units(const Direction& from, int gates, const std::vector<int64_t>& units) {
  const int64_t hidden = from.weight_h.rows / gates;
  const auto rows_of = [&](int blocks) {
    std::vector<int64_t> rows;
    for (int block = 0; block < blocks; ++block)
      for (const int64_t unit : units) rows.push_back(block * hidden + unit);
    return rows;
  };
  const std::vector<int64_t> rows = rows_of(gates);
  Direction result;
  result.weight_x = from.weight_x.selected(rows);
  result.weight_h = from.weight_h.selected(rows);
  result.bias_x = of_units(from.bias_x, rows);
  result.bias_h = of_units(from.bias_h, rows);
  result.peepholes = of_units(from.peepholes, rows_of(3));
  return result;
}

// Computes some units of a row, step by step, each step from the states recorded before it.
class UnitWalk {
 public:
  UnitWalk(const Sample& sample, const Layer& layer, const Layer& part, int64_t layer_index, size_t direction,
           const Recording& recording, const Sequence& input, bool gates_only, ProductCache* cache)
      : sample_(sample),
        layer_(layer),
        part_(part),
        whole_(layer.directions[direction]),
        recording_(recording),
        recorded_(recording.layers[layer_index][direction]),
        input_(input),
        gates_only_(gates_only),
        cache_(cache) {
    has_cell_ = layer.cell.kind == Kind::kLstm;
    first_h_ = exact(initial(whole_.h0, sample.row, layer.outputs()));
    h_ = first_h_;
    first_c_ = has_cell_ ? exact(of_units(initial(whole_.c0, sample.row, layer.hidden()), sample.units)) : Values();
    c_ = first_c_;
  }

  bool differs() {
    for (int64_t turn = 0; turn < recording_.steps; ++turn)
      if (step_differs(turn)) return true;
    return false;
  }

 private:
  bool step_differs(int64_t turn) {
    const int64_t time = whole_.reverse ? recording_.steps - 1 - turn : turn;
    const int64_t index = time * recording_.batch + sample_.row;
    const Stale stale = turn == 0 ? Stale::kNone : layer_.cell.stale;
    const bool all = stale == Stale::kAll;
    const Values& products = all || stale == Stale::kProducts || stale == Stale::kHidden ? first_h_ : h_;
    const Values blend = chosen(all || stale == Stale::kBlend || stale == Stale::kHidden ? first_h_ : h_);
    const Values& cell = all || stale == Stale::kCell ? first_c_ : c_;
    const Values x = input_.row(index);
    const Layer& now = part_.at(turn, recording_.steps);
    // The products of this step are not cached: no other step has the same rows.
    if (cache_) cache_->count_units(now.directions[0]);
    StepResult next = step(now.cell, now.directions[0], recording_.precision, {x, products, blend, cell, nullptr});
    if (result_differs(next, index) || (turn + 1 == recording_.steps && !gates_only_ && last_differs(next)))
      return true;
    h_ = recorded_state(recorded_.h, index, layer_.outputs());
    if (has_cell_)
      c_ = recorded_.c.empty() ? std::move(next.c) : chosen(recorded_state(recorded_.c, index, layer_.hidden()));
    return false;
  }

  bool result_differs(const StepResult& next, int64_t index) const {
    const int gates = layer_.cell.kind == Kind::kRnn ? 0 : gates_only_ ? 2 : gates_of(layer_.cell.kind);
    for (int gate = 0; gate < gates; ++gate)
      if (numbers_differ(next.gates[gate], recorded_.gates[gate], index, layer_.hidden())) return true;
    if (gates_only_) return false;
    return numbers_differ(next.c, recorded_.c, index, layer_.hidden()) ||
           numbers_differ(next.h, recorded_.h, index, layer_.outputs());
  }
  bool last_differs(const StepResult& next) const {
    return numbers_differ(next.h, recorded_.hn, sample_.row, layer_.outputs()) ||
           numbers_differ(next.c, recorded_.cn, sample_.row, layer_.hidden());
  }
  bool numbers_differ(const Values& computed, const std::vector<double>& array, int64_t index, int64_t columns) const {
    if (array.empty()) return false;
    for (int64_t unit = 0; unit < computed.size(); ++unit) {
      const double recorded = array[index * columns + sample_.units[unit]];
      const double bound = bound_of(computed.error[unit], recording_.precision);
      if (against(computed.value[unit], recorded, bound) > 1) return true;
    }
    return false;
  }

  Values chosen(const Values& all) const {
    Values result;
    result.value = of_units(all.value, sample_.units);
    result.error = of_units(all.error, sample_.units);
    return result;
  }
  Values recorded_state(const std::vector<double>& array, int64_t index, int64_t columns) const {
    Values state = exact({array.begin() + index * columns, array.begin() + (index + 1) * columns});
    forgive_storing(state, recording_.precision);
    return state;
  }

  const Sample& sample_;
  const Layer& layer_;
  const Layer& part_;
  const Direction& whole_;
  const Recording& recording_;
  const Recorded& recorded_;
  const Sequence& input_;
  const bool gates_only_;  // of a GRU: r and z
  ProductCache* cache_;
  bool has_cell_ = false;
  Values first_h_, first_c_, h_, c_;  // of c the units alone
};

bool is_gru_without_norm(const Layer& layer) {
  return layer.cell.kind == Kind::kGru && !layer.cell.norm_eps &&
         (!layer.elsewhere || is_gru_without_norm(*layer.elsewhere));
}

// A layer whose gate n isn't looked at.
Layer with_reset_after(Layer layer) {
  layer.cell.reset_after = true;
  if (layer.elsewhere) layer.elsewhere = std::make_shared<const Layer>(with_reset_after(*layer.elsewhere));
  return layer;
}

}  // namespace

bool has_separate_units(const Layer& layer) {
  const Cell& cell = layer.cell;
  const bool projected = std::any_of(layer.directions.begin(), layer.directions.end(),
                                     [](const Direction& each) { return !each.projection.empty(); });
  const bool reset_before = cell.kind == Kind::kGru && !cell.reset_after;
  return !cell.norm_eps && !projected && !reset_before && (!layer.elsewhere || has_separate_units(*layer.elsewhere));
}

std::vector<double> of_units(const std::vector<double>& all, const std::vector<int64_t>& units) {
  std::vector<double> result;
  if (all.empty()) return result;
  result.reserve(units.size());
  for (const int64_t unit : units) result.push_back(all[unit]);
  return result;
}

Layer with_units(const Layer& layer, size_t direction, const std::vector<int64_t>& units) {
  Layer result;
  result.cell = layer.cell;
  result.steps = layer.steps;
  result.directions = {with_units(layer.directions[direction], gates_of(layer.cell.kind), units)};
  if (layer.elsewhere) result.elsewhere = std::make_shared<const Layer>(with_units(*layer.elsewhere, direction, units));
  return result;
}

bool differs_in(const Sample& sample, const Layer& layer, int64_t layer_index, size_t direction,
                const Recording& recording, const Sequence& input, ProductCache* cache) {
  const Recorded& recorded = recording.layers[layer_index][direction];
  if (sample.units.empty() || recorded.h.empty()) return false;
  // Of a GRU with its reset gate before the product r and z can be computed by themselves.
  const bool gates_only = !has_separate_units(layer);
  if (gates_only && (recorded.gates[0].empty() || !is_gru_without_norm(layer))) return false;
  Layer part = with_units(layer, direction, sample.units);
  if (gates_only) part = with_reset_after(std::move(part));
  return UnitWalk(sample, layer, part, layer_index, direction, recording, input, gates_only, cache).differs();
}

}  // namespace weft::verify
