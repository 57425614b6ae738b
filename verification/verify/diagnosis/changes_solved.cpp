// Numbers that an implementation has and the layers lack, read off the recording: bounds, factors and addends.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "verify/diagnosis/changes.h"
#include "verify/diagnosis/solve.h"

namespace weft::verify {
namespace {

std::function<std::string(double)> written(std::string before, std::string after) {
  return [before = std::move(before), after = std::move(after)](double number) {
    return fmt::format("{}{:g}{}", before, number, after);
  };
}

class Dials {
 public:
  Dials(const Scope& scope, std::vector<Change>& changes) : scope_(scope), changes_(changes) {}

  void add(std::string name, std::function<std::string(double)> detail, double lowest, double highest, bool by_factors,
           InPairs in_pairs, std::function<void(Layer&, double)> edit) {
    Change change{name, "", {}};
    Dial dial{std::move(name),
              std::move(detail),
              [scope = scope_, edit = std::move(edit)](Problem& changed, double number) {
                edit_layers(changed, scope, [&](Layer& layer) { edit(layer, number); });
              },
              lowest,
              highest,
              by_factors};
    change.in_pairs = in_pairs;
    change.solve = [dial = std::move(dial)](const Problem& problem, ProductCache& cache) {
      return solved(problem, dial, cache);
    };
    changes_.push_back(std::move(change));
  }

 private:
  Scope scope_;
  std::vector<Change>& changes_;
};

void add_bounds(const Cell& cell, Dials& dials) {
  std::vector<int> all(gates_of(cell.kind));
  std::iota(all.begin(), all.end(), 0);
  const auto bound_gates = [&](const std::vector<int>& gates, InPairs in_pairs) {
    dials.add("clip", written("", gates_text(cell.kind, gates)), 1e-3, 1e3, true, in_pairs,
              [gates](Layer& layer, double number) {
                for (const int gate : gates) layer.cell.faults[gate].clip = number;
              });
  };
  bound_gates(all, InPairs::kLate);
  for (const int gate : all)
    if (all.size() > 1) bound_gates({gate}, InPairs::kNo);
  dials.add("cell_clip", written("", ""), 1e-3, 1e3, true, InPairs::kLate,
            [](Layer& layer, double number) { layer.cell.cell_clip = number; });
  if (cell.kind == Kind::kLstm)
    dials.add("output_clip", written("", ""), 1e-3, 1e3, true, InPairs::kLate,
              [](Layer& layer, double number) { layer.cell.output_clip = number; });
}

struct Factor {
  const char* name;
  double GateFault::* member;
};

void add_factors(const Problem& problem, const Scope& scope, const Cell& cell, Dials& dials) {
  const auto has = [&](std::vector<double> Direction::* bias) {
    return any_direction(problem, scope, [&](const Layer&, const Direction& each) { return !(each.*bias).empty(); });
  };
  std::vector<Factor> factors{{"input_product", &GateFault::input}, {"recurrent_product", &GateFault::recurrent}};
  if (has(&Direction::bias_x)) factors.push_back({"input_bias", &GateFault::input_bias});
  if (has(&Direction::bias_h)) factors.push_back({"recurrent_bias", &GateFault::recurrent_bias});
  if (has(&Direction::peepholes)) factors.push_back({"peepholes", &GateFault::peephole});
  const std::vector<int> all = computed_gates(cell);
  for (const Factor& factor : factors) {
    const auto scale = [&](const std::vector<int>& gates) {
      dials.add(factor.name, written("times ", gates_text(cell.kind, gates)), -8, 8, false, InPairs::kNo,
                [gates, member = factor.member](Layer& layer, double number) {
                  for (const int gate : gates) layer.cell.faults[gate].*member = number;
                });
    };
    scale(all);
    for (const int gate : all)
      if (all.size() > 1) scale({gate});
  }
}

}  // namespace

void add_solved_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const Cell& cell = problem.layers[std::max<int64_t>(scope.layer, 0)].cell;
  Dials dials(scope, changes);
  add_bounds(cell, dials);
  dials.add("zoneout", written("", " of the old hidden state"), 1e-3, 0.999, false, InPairs::kLate,
            [](Layer& layer, double number) { layer.cell.zoneout[0] = number; });
  if (cell.kind == Kind::kLstm)
    dials.add("zoneout", written("", " of the old cell state"), 1e-3, 0.999, false, InPairs::kLate,
              [](Layer& layer, double number) { layer.cell.zoneout[1] = number; });
  for (const int gate : computed_gates(cell)) {
    const bool forget = cell.kind == Kind::kLstm && gate == 1;
    const std::string where = forget ? "" : gates_text(cell.kind, {gate});
    const auto detail = [where](double number) {
      return fmt::format("{:g} {}{}", std::abs(number), number > 0 ? "more" : "less", where);
    };
    dials.add(forget ? "forget_bias" : "gate_offset", detail, -16, 16, false, InPairs::kNo,
              [gate](Layer& layer, double number) { layer.cell.faults[gate].offset += number; });
  }
  if (cell.norm_eps)
    dials.add("epsilon", written("", ""), 1e-12, 1, true, InPairs::kNo,
              [](Layer& layer, double number) { layer.cell.norm_eps = number; });
  add_factors(problem, scope, cell, dials);
}

}  // namespace weft::verify
