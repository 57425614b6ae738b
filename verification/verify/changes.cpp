#include "verify/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::verify {
namespace {

bool is_in(int64_t wanted, size_t index) { return wanted < 0 || wanted == static_cast<int64_t>(index); }

bool all_zero(const Matrix& matrix) {
  return std::all_of(matrix.values.begin(), matrix.values.end(), [](double value) { return value == 0; });
}

// A stale state, and other faults of the cell, are the whole layer's: directions share the code.
void add_stale_state(const Scope& scope, Kind kind, std::vector<Change>& changes) {
  const auto add = [&](std::string name, std::string detail, Stale stale) {
    changes.push_back({std::move(name), std::move(detail), [scope, stale](Problem& problem) {
                         edit_layers(problem, scope, [&](Layer& layer) { layer.cell.stale = stale; });
                       }});
  };
  if (kind == Kind::kLstm) {
    add("stale_hidden_state", "hidden and cell state", Stale::kAll);
    add("stale_hidden_state", "hidden state", Stale::kHidden);
    add("stale_cell_state", "", Stale::kCell);
    return;
  }
  add("stale_hidden_state", "", Stale::kHidden);
  if (kind != Kind::kGru) return;
  add("stale_hidden_state", "in the products only", Stale::kProducts);
  add("stale_hidden_state", "in the update only", Stale::kBlend);
}

void add_initial_state(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const auto add = [&](std::string detail, bool (*applies)(const Direction&), void (*edit)(Direction&)) {
    if (!any_direction(problem, scope, [&](const Layer&, const Direction& each) { return applies(each); })) return;
    changes.push_back({"initial_state", std::move(detail), [scope, edit](Problem& problem) {
                         edit_directions(problem, scope, [&](Layer&, Direction& each) { edit(each); });
                       }});
  };
  const auto has_h = [](const Direction& each) { return !all_zero(each.h0); };
  const auto has_c = [](const Direction& each) { return !all_zero(each.c0); };
  const auto has_one = [](const Direction& each) { return !all_zero(each.h0) || !all_zero(each.c0); };
  add("zeros instead of the one given", has_one, [](Direction& each) { each.h0 = each.c0 = {}; });
  const auto has_both = [](const Direction& each) { return !all_zero(each.h0) && !all_zero(each.c0); };
  if (any_direction(problem, scope, [&](const Layer&, const Direction& each) { return has_both(each); })) {
    add("zeros instead of h0", has_h, [](Direction& each) { each.h0 = {}; });
    add("zeros instead of c0", has_c, [](Direction& each) { each.c0 = {}; });
  }
  const auto exchangeable = [](const Direction& each) {
    return (!all_zero(each.h0) || !all_zero(each.c0)) && each.projection.empty() && each.h0 != each.c0;
  };
  if (any_layer(problem, scope, [](const Layer& layer) { return layer.cell.kind == Kind::kLstm; }))
    add("h0 and c0 exchanged", exchangeable, [](Direction& each) { std::swap(each.h0, each.c0); });
}

}  // namespace

void edit_layers(Problem& problem, const Scope& scope, const std::function<void(Layer&)>& edit) {
  for (size_t index = 0; index < problem.layers.size(); ++index)
    if (is_in(scope.layer, index)) edit(problem.layers[index]);
}

void edit_directions(Problem& problem, const Scope& scope, const std::function<void(Layer&, Direction&)>& edit) {
  edit_layers(problem, scope, [&](Layer& layer) {
    for (size_t index = 0; index < layer.directions.size(); ++index)
      if (is_in(scope.direction, index)) edit(layer, layer.directions[index]);
  });
}

bool any_layer(const Problem& problem, const Scope& scope, const std::function<bool(const Layer&)>& holds) {
  for (size_t index = 0; index < problem.layers.size(); ++index)
    if (is_in(scope.layer, index) && holds(problem.layers[index])) return true;
  return false;
}

bool any_direction(const Problem& problem, const Scope& scope,
                   const std::function<bool(const Layer&, const Direction&)>& holds) {
  return any_layer(problem, scope, [&](const Layer& layer) {
    for (size_t index = 0; index < layer.directions.size(); ++index)
      if (is_in(scope.direction, index) && holds(layer, layer.directions[index])) return true;
    return false;
  });
}

void add_cell_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const auto add = [&](std::string name, std::string detail, std::function<void(Layer&)> edit) {
    changes.push_back({std::move(name), std::move(detail),
                       [scope, edit = std::move(edit)](Problem& problem) { edit_layers(problem, scope, edit); }});
  };
  const Layer& layer = problem.layers[std::max<int64_t>(scope.layer, 0)];
  const Cell& cell = layer.cell;
  if (cell.kind == Kind::kGru) {
    add(cell.reset_after ? "reset_before" : "reset_after", "",
        [](Layer& each) { each.cell.reset_after = !each.cell.reset_after; });
  }
  if (problem.recording.steps > 1) add_stale_state(scope, cell.kind, changes);
  if (cell.kind == Kind::kGru) {
    add("update_gate_sense", "", [](Layer& each) { each.cell.swapped_update = !each.cell.swapped_update; });
    add("bias_outside_reset", "", [](Layer& each) { each.cell.bias_outside_reset = !each.cell.bias_outside_reset; });
  }
  add_initial_state(problem, scope, changes);
  if (cell.kind == Kind::kLstm) {
    add("forget_bias", "1 more", [](Layer& each) { each.cell.forget_bias = 1; });
    add("forget_bias", "1 less", [](Layer& each) { each.cell.forget_bias = -1; });
    for (const auto& [coupled, detail] :
         {std::pair(Coupled::kNone, "not coupled"), std::pair(Coupled::kInput, "f = 1 - i"),
          std::pair(Coupled::kForget, "i = 1 - f")}) {
      if (coupled != cell.coupled)
        add("coupled_gates", detail, [coupled](Layer& each) { each.cell.coupled = coupled; });
    }
  }
  if (!std::isinf(cell.clip)) add("clip", "ignored", [](Layer& each) { each.cell.clip = INFINITY; });
  if (!std::isinf(cell.cell_clip)) add("cell_clip", "ignored", [](Layer& each) { each.cell.cell_clip = INFINITY; });
  if (cell.zoneout != std::array<double, 2>{}) add("zoneout", "ignored", [](Layer& each) { each.cell.zoneout = {}; });
  if (!cell.norm_eps) return;
  for (const double eps : {1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12, 0.0}) {
    if (eps != *cell.norm_eps)
      add("epsilon", fmt::format("{:g}", eps), [eps](Layer& each) { each.cell.norm_eps = eps; });
  }
  add("layer_norm", "ignored", [](Layer& each) { each.cell.norm_eps.reset(); });
}

std::vector<Change> known_changes(const Problem& problem, const Scope& scope) {
  std::vector<Change> all;
  add_cell_changes(problem, scope, all);
  add_weight_changes(problem, scope, all);
  add_activation_changes(problem, scope, all);
  add_order_changes(problem, scope, all);
  add_number_changes(problem, scope, all);
  return all;
}

}  // namespace weft::verify
