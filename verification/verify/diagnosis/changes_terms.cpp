// The terms of each gate: terms left out, numbers added, the places of the two biases of n.

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "verify/diagnosis/changes.h"

namespace weft::verify {
namespace {

// A term of a gate, and whether a direction has it: its elements aren't all 0.
struct Term {
  std::string_view name;
  double GateFault::* factor;
  bool (*has)(const Layer&, const Direction&, int gate);
};

bool any_in_block(const std::vector<double>& values, int64_t block, int64_t blocks) {
  const auto size = static_cast<int64_t>(values.size()) / blocks;
  return std::any_of(values.begin() + block * size, values.begin() + (block + 1) * size,
                     [](double value) { return value != 0; });
}

bool has_peephole(const Layer& layer, const Direction& direction, int gate) {
  if (layer.cell.kind != Kind::kLstm || gate == 2 || direction.peepholes.empty()) return false;
  return any_in_block(direction.peepholes, gate == 3 ? 2 : gate, 3);
}

const Term kTerms[] = {
    {"recurrent_bias", &GateFault::recurrent_bias,
     [](const Layer& layer, const Direction& each, int gate) {
       return any_in_block(each.bias_h, gate, gates_of(layer.cell.kind));
     }},
    {"input_bias", &GateFault::input_bias,
     [](const Layer& layer, const Direction& each, int gate) {
       return any_in_block(each.bias_x, gate, gates_of(layer.cell.kind));
     }},
    {"recurrent_product", &GateFault::recurrent,
     [](const Layer& layer, const Direction& each, int gate) {
       return any_in_block(*each.weight_h.values, gate, gates_of(layer.cell.kind));
     }},
    {"input_product", &GateFault::input,
     [](const Layer& layer, const Direction& each, int gate) {
       return any_in_block(*each.weight_x.values, gate, gates_of(layer.cell.kind));
     }},
    {"peepholes", &GateFault::peephole, has_peephole},
};

std::vector<int> gates_with(const Problem& problem, const Scope& scope, const Cell& cell, const Term& term) {
  std::vector<int> gates;
  for (const int gate : computed_gates(cell))
    if (any_direction(problem, scope,
                      [&](const Layer& layer, const Direction& each) { return term.has(layer, each, gate); }))
      gates.push_back(gate);
  return gates;
}

// Each gate, then all sets of several.
std::vector<std::vector<int>> subsets(const std::vector<int>& gates) {
  std::vector<std::vector<int>> result;
  for (unsigned bits = 1; bits < 1U << gates.size(); ++bits) {
    std::vector<int> subset;
    for (size_t index = 0; index < gates.size(); ++index)
      if ((bits >> index & 1U) != 0) subset.push_back(gates[index]);
    result.push_back(std::move(subset));
  }
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return result;
}

void add_missing(const Problem& problem, const Scope& scope, const Cell& cell, const Term& term,
                 std::vector<Change>& changes) {
  const std::vector<int> all = gates_with(problem, scope, cell, term);
  const bool product = term.name.ends_with("product");
  for (const std::vector<int>& gates : subsets(all)) {
    // Whole biases and all peepholes have changes of their own.
    const bool whole = gates.size() == all.size();
    if (whole && !product) continue;
    changes.push_back({std::string(term.name), "missing" + gates_text(cell.kind, gates),
                       [scope, gates, factor = term.factor](Problem& changed) {
                         edit_layers(changed, scope, [&](Layer& layer) {
                           for (const int gate : gates) layer.cell.faults[gate].*factor = 0;
                         });
                       },
                       false, gates.size() == 1 && !product ? InPairs::kLate : InPairs::kNo, /*by_step=*/true});
  }
}

void add_offsets(const Scope& scope, const Cell& cell, std::vector<Change>& changes) {
  for (const int gate : computed_gates(cell)) {
    if (cell.kind == Kind::kLstm && gate == 1) continue;  // forget_bias is this change
    for (const double more : {1.0, -1.0}) {
      changes.push_back({"gate_offset", std::string(more > 0 ? "1 more" : "1 less") + gates_text(cell.kind, {gate}),
                         [scope, gate, more](Problem& changed) {
                           edit_layers(changed, scope, [&](Layer& layer) { layer.cell.faults[gate].offset += more; });
                         },
                         false, InPairs::kLate, /*by_step=*/true});
    }
  }
}

void add_places(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const auto has = [&](std::vector<double> Direction::* bias) {
    return any_direction(problem, scope, [&](const Layer& layer, const Direction& each) {
      return layer.cell.reset_after && !(each.*bias).empty() && any_in_block(each.*bias, 2, 3);
    });
  };
  const auto add = [&](std::string name, std::string detail, Biases biases) {
    changes.push_back({std::move(name), std::move(detail),
                       [scope, biases](Problem& changed) {
                         edit_layers(changed, scope, [&](Layer& layer) { layer.cell.biases = biases; });
                       },
                       false, InPairs::kLate, /*by_step=*/true});
  };
  if (!has(&Direction::bias_x) || !has(&Direction::bias_h)) return;
  add("biases_exchanged", "", Biases::kExchanged);
  add("bias_inside_reset", "both biases", Biases::kInside);
  add("biases_exchanged", "the input bias in both places", Biases::kInputInBoth);
  add("biases_exchanged", "the recurrent bias in both places", Biases::kRecurrentInBoth);
}

}  // namespace

void add_term_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const Cell& cell = problem.layers[std::max<int64_t>(scope.layer, 0)].cell;
  for (const Term& term : kTerms) add_missing(problem, scope, cell, term, changes);
  if (cell.kind == Kind::kGru) add_places(problem, scope, changes);
  add_offsets(scope, cell, changes);
}

}  // namespace weft::verify
