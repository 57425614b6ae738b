#include "verify/diagnosis/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

namespace weft::verify {
namespace {

bool is_in(int64_t wanted, size_t index) { return wanted < 0 || wanted == static_cast<int64_t>(index); }

bool all_zero(const Matrix& matrix) {
  return std::all_of(matrix.values->begin(), matrix.values->end(), [](double value) { return value == 0; });
}

// A stale state, and other faults of the cell, are faults of the whole layer: directions share the code.
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

void add_ignored_clips(const Scope& scope, const Cell& cell, std::vector<Change>& changes) {
  const auto add = [&](const std::vector<int>& gates, InPairs in_pairs) {
    changes.push_back({"clip", "ignored" + gates_text(cell.kind, gates),
                       [scope, gates](Problem& problem) {
                         edit_layers(problem, scope, [&](Layer& layer) {
                           for (const int gate : gates) layer.cell.faults[gate].clip = INFINITY;
                         });
                       },
                       false, in_pairs, /*by_step=*/true});
  };
  std::vector<int> all(gates_of(cell.kind));
  std::iota(all.begin(), all.end(), 0);
  add(all, InPairs::kYes);
  for (const int gate : all)
    if (all.size() > 1) add({gate}, InPairs::kNo);
}

std::string steps_text(Steps steps) {
  switch (steps) {
    case Steps::kFirst:
      return "at step 0 only";
    case Steps::kLast:
      return "at the last step only";
    case Steps::kAllButFirst:
      return "at all steps but step 0";
    case Steps::kAllButLast:
      return "at all steps but the last";
    case Steps::kAll:
      break;
  }
  return "";
}

Change limited_to(const Change& change, const Scope& scope, Steps steps) {
  Change result = change;
  result.detail += (change.detail.empty() ? "" : "; ") + steps_text(steps);
  result.steps = steps;
  result.by_step = false;
  result.in_pairs = change.in_pairs == InPairs::kNo || steps != Steps::kFirst ? InPairs::kNo : InPairs::kLate;
  result.apply = [scope, steps, apply = change.apply](Problem& problem) {
    std::vector<Layer> before = problem.layers;
    apply(problem);
    for (size_t index = 0; index < before.size(); ++index) {
      if (!is_in(scope.layer, index)) continue;
      problem.layers[index].steps = steps;
      problem.layers[index].elsewhere = std::make_shared<const Layer>(std::move(before[index]));
    }
  };
  return result;
}

}  // namespace

std::vector<int> computed_gates(const Cell& cell) {
  std::vector<int> gates;
  for (int gate = 0; gate < gates_of(cell.kind); ++gate) {
    const bool derived =
        (cell.coupled == Coupled::kInput && gate == 1) || (cell.coupled == Coupled::kForget && gate == 0);
    if (cell.kind != Kind::kLstm || !derived) gates.push_back(gate);
  }
  return gates;
}

std::string gates_text(Kind kind, const std::vector<int>& gates) {
  if (static_cast<int>(gates.size()) == gates_of(kind)) return "";
  std::string text = gates.size() == 1 ? ", in gate " : ", in gates ";
  for (size_t index = 0; index < gates.size(); ++index) text += (index ? ", " : "") + gate_name(kind, gates[index]);
  return text;
}

void edit_layers(Problem& problem, const Scope& scope, const std::function<void(Layer&)>& edit) {
  for (size_t index = 0; index < problem.layers.size(); ++index) {
    if (!is_in(scope.layer, index)) continue;
    Layer& layer = problem.layers[index];
    edit(layer);
    if (!layer.elsewhere) continue;
    Layer other = *layer.elsewhere;
    edit(other);
    layer.elsewhere = std::make_shared<const Layer>(std::move(other));
  }
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
                       [scope, edit = std::move(edit)](Problem& problem) { edit_layers(problem, scope, edit); }, false,
                       InPairs::kYes, /*by_step=*/true});
  };
  const Layer& layer = problem.layers[std::max<int64_t>(scope.layer, 0)];
  const Cell& cell = layer.cell;
  if (cell.kind == Kind::kGru) {
    add(cell.reset_after ? "reset_before" : "reset_after", "",
        [](Layer& each) { each.cell.reset_after = !each.cell.reset_after; });
  }
  if (problem.recording->steps > 1) add_stale_state(scope, cell.kind, changes);
  if (cell.kind == Kind::kGru) {
    add("update_gate_sense", "", [](Layer& each) { each.cell.swapped_update = !each.cell.swapped_update; });
    add("bias_outside_reset", "", [](Layer& each) { each.cell.biases = Biases::kOutside; });
  }
  add_initial_state(problem, scope, changes);
  if (cell.kind == Kind::kLstm) {
    add("forget_bias", "1 more", [](Layer& each) { each.cell.faults[1].offset += 1; });
    add("forget_bias", "1 less", [](Layer& each) { each.cell.faults[1].offset -= 1; });
    for (const auto& [coupled, detail] :
         {std::pair(Coupled::kNone, "not coupled"), std::pair(Coupled::kInput, "f = 1 - i"),
          std::pair(Coupled::kForget, "i = 1 - f")}) {
      if (coupled != cell.coupled)
        add("coupled_gates", detail, [coupled](Layer& each) { each.cell.coupled = coupled; });
    }
  }
  if (!std::isinf(cell.clip)) add_ignored_clips(scope, cell, changes);
  if (!std::isinf(cell.cell_clip)) add("cell_clip", "ignored", [](Layer& each) { each.cell.cell_clip = INFINITY; });
  if (cell.zoneout != std::array<double, 2>{}) add("zoneout", "ignored", [](Layer& each) { each.cell.zoneout = {}; });
  if (!cell.norm_eps) return;
  for (const double eps : {1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12, 0.0}) {
    if (eps != *cell.norm_eps)
      add("epsilon", fmt::format("{:g}", eps), [eps](Layer& each) { each.cell.norm_eps = eps; });
  }
  add("layer_norm", "ignored", [](Layer& each) { each.cell.norm_eps.reset(); });
}

void add_step_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const int64_t steps = problem.recording->steps;
  if (steps < 2) return;
  const size_t count = changes.size();
  for (size_t index = 0; index < count; ++index) {
    if (!changes[index].by_step) continue;
    for (const Steps where : {Steps::kFirst, Steps::kAllButFirst, Steps::kLast, Steps::kAllButLast}) {
      const bool other = where == Steps::kFirst || where == Steps::kAllButFirst;  // with two steps the other choices
                                                                                  // coincide with these
      if (other || steps > 2) changes.push_back(limited_to(changes[index], scope, where));
    }
  }
}

std::vector<Change> known_changes(const Problem& problem, const Scope& scope) {
  std::vector<Change> all;
  add_cell_changes(problem, scope, all);
  add_weight_changes(problem, scope, all);
  add_activation_changes(problem, scope, all);
  add_term_changes(problem, scope, all);
  add_order_changes(problem, scope, all);
  add_number_changes(problem, scope, all);
  add_step_changes(problem, scope, all);
  add_solved_changes(problem, scope, all);
  return all;
}

}  // namespace weft::verify
