// Other activations, and numbers of another precision.

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "verify/diagnosis/changes.h"

namespace weft::verify {
namespace {

using Function = Activation::Kind;

const std::array<Activation, 11> kActivations{{
    {Function::kSigmoid, 0, 0},
    {Function::kTanh, 0, 0},
    {Function::kRelu, 0, 0},
    {Function::kIdentity, 0, 0},
    {Function::kHardSigmoid, 1.0 / 6, 0.5},
    {Function::kHardSigmoid, 0.2, 0.5},
    {Function::kHardSigmoid, 0.25, 0.5},
    {Function::kHardTanh, 0, 0},
    {Function::kSoftsign, 0, 0},
    {Function::kSoftplus, 0, 0},
    {Function::kElu, 1, 0},
}};

// Whether all recorded values are exact in a coarser dtype. If they aren't, nothing shows that they were computed in
// that dtype.
bool holds_all(const Recording& recording, DType dtype) {
  for (const auto& layer : recording.layers)
    for (const Recorded& recorded : layer)
      for (const double value : recorded.h)
        if (round_to(value, dtype) != value && !std::isnan(value)) return false;
  return true;
}

void round_all(Direction& direction, DType dtype) {
  const auto each = [&](std::vector<double>& values) {
    for (double& value : values) value = round_to(value, dtype);
  };
  for (Matrix* matrix : {&direction.weight_x, &direction.weight_h, &direction.projection}) each(matrix->edit());
  for (std::vector<double>* vector : {&direction.bias_x, &direction.bias_h, &direction.peepholes, &direction.norm_x,
                                      &direction.norm_h, &direction.norm_c, &direction.norm_c_bias})
    each(*vector);
}

std::string gate_activation_name(const Cell& cell, const Activation& to) {
  const bool slope = to.kind == Function::kHardSigmoid && cell.gate.kind == Function::kHardSigmoid;
  return slope ? "hard_sigmoid_slope" : "gate_activation";
}

// The gates whose activation is `Cell::gate`, if there are several.
std::vector<int> sigmoid_gates(const Cell& cell) {
  std::vector<int> gates;
  for (const int gate : computed_gates(cell)) {
    const bool other = cell.kind == Kind::kRnn || gate == 2;  // n, g
    if (!other) gates.push_back(gate);
  }
  return gates.size() > 1 ? gates : std::vector<int>();
}

// Matrix units that round their operands and sum in float32.
void add_operands(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  if (problem.recording->own || problem.recording->precision.unit > std::ldexp(1.0, -24)) return;
  for (const auto& [bits, detail] : {std::pair(11, "operands of products rounded to 11 bits, as TF32 and float16 have"),
                                     std::pair(8, "operands of products rounded to 8 bits, as bfloat16 has")}) {
    changes.push_back({"dtype", detail,
                       [scope, bits = bits](Problem& changed) {
                         edit_layers(changed, scope, [&](Layer& layer) { layer.cell.operand_bits = bits; });
                         edit_directions(changed, scope, [&](Layer&, Direction& direction) {
                           for (Matrix* matrix : {&direction.weight_x, &direction.weight_h, &direction.projection})
                             for (double& value : matrix->edit()) value = round_to_bits(value, bits);
                         });
                       },
                       false, InPairs::kNo});
  }
}

}  // namespace

void add_activation_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  const Cell& cell = problem.layers[std::max<int64_t>(scope.layer, 0)].cell;
  const auto add = [&](std::string name, const Activation& to, std::vector<Activation Cell::*> members) {
    changes.push_back({std::move(name), to_string(to),
                       [scope, to, members = std::move(members)](Problem& changed) {
                         edit_layers(changed, scope, [&](Layer& layer) {
                           for (const auto member : members) layer.cell.*member = to;
                         });
                       },
                       false, InPairs::kYes, /*by_step=*/true});
  };
  for (const Activation& to : kActivations) {
    if (cell.kind == Kind::kRnn || to == cell.gate) continue;
    add(gate_activation_name(cell, to), to, {&Cell::gate});
  }
  for (const int gate : sigmoid_gates(cell)) {
    for (const Activation& to : kActivations) {
      if (to == cell.gate) continue;
      changes.push_back({gate_activation_name(cell, to), to_string(to) + gates_text(cell.kind, {gate}),
                         [scope, gate, to](Problem& changed) {
                           edit_layers(changed, scope, [&](Layer& layer) { layer.cell.faults[gate].activation = to; });
                         },
                         false, InPairs::kNo, /*by_step=*/true});
    }
  }
  for (const Activation& to : kActivations) {
    if (cell.kind != Kind::kLstm) {
      if (!(to == cell.activation)) add("activation", to, {&Cell::activation});
      continue;
    }
    if (!(to == cell.activation && to == cell.output)) add("activation", to, {&Cell::activation, &Cell::output});
    if (!(to == cell.output)) add("output_activation", to, {&Cell::output});
    if (!(to == cell.activation)) add("cell_activation", to, {&Cell::activation});
  }
}

void add_number_changes(const Problem& problem, const Scope& scope, std::vector<Change>& changes) {
  for (const auto& [dtype, name] :
       {std::pair(DType::kF32, "float32"), std::pair(DType::kF16, "float16"), std::pair(DType::kBF16, "bfloat16")}) {
    const Precision precision = Precision::of(dtype);
    if (precision.unit <= problem.recording->precision.unit) continue;
    const auto round_weights = [scope, dtype = dtype](Problem& changed) {
      edit_directions(changed, scope, [&](Layer&, Direction& direction) { round_all(direction, dtype); });
    };
    changes.push_back({"dtype", std::string("weights rounded to ") + name, round_weights, false, InPairs::kNo});
    if (problem.recording->own || !holds_all(*problem.recording, dtype)) continue;
    changes.push_back({"dtype", std::string("computed in ") + name,
                       [round_weights, precision](Problem& changed) {
                         round_weights(changed);
                         changed.recording.edit().precision = precision;
                       },
                       false, InPairs::kNo});
  }
  add_operands(problem, scope, changes);
}

}  // namespace weft::verify
