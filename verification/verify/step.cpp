#include "verify/step.h"

#include <algorithm>
#include <cmath>

namespace weft::verify {
namespace {

Values clamped(Values x, double bound) {
  if (std::isinf(bound)) return x;
  for (double& value : x.value) value = value < -bound ? -bound : value > bound ? bound : value;
  return x;
}

// a * b, rounded.
Values times(const Values& a, const Values& b, const Precision& precision) {
  Values result(a.size());
  for (int64_t index = 0; index < a.size(); ++index) {
    const double value = a.value[index] * b.value[index];
    const double error = std::abs(a.value[index]) * b.error[index] + std::abs(b.value[index]) * a.error[index] +
                         a.error[index] * b.error[index];
    result.value[index] = value;
    result.error[index] = with_rounding(error, 1, std::abs(value), precision);
  }
  return result;
}

Values plus(const Values& a, const Values& b, const Precision& precision) {
  Values result(a.size());
  for (int64_t index = 0; index < a.size(); ++index) {
    result.value[index] = a.value[index] + b.value[index];
    const double magnitude = std::abs(a.value[index]) + std::abs(b.value[index]);
    result.error[index] = with_rounding(a.error[index] + b.error[index], 1, magnitude, precision);
  }
  return result;
}

Values one_minus(const Values& a, const Precision& precision) {
  Values result(a.size());
  for (int64_t index = 0; index < a.size(); ++index) {
    result.value[index] = 1 - a.value[index];
    result.error[index] = with_rounding(a.error[index], 1, std::abs(result.value[index]), precision);
  }
  return result;
}

// (1 - z) n + z h. Both terms have the same error of z in them, with opposite signs.
Values blended(const Values& z, const Values& n, const Values& h, const Precision& precision) {
  Values result(z.size());
  for (int64_t index = 0; index < z.size(); ++index) {
    const double update = z.value[index], fresh = n.value[index], old = h.value[index];
    const double spread = std::abs(old - fresh) + n.error[index] + h.error[index];
    const double error =
        std::abs(1 - update) * n.error[index] + std::abs(update) * h.error[index] + z.error[index] * spread;
    result.value[index] = (1 - update) * fresh + update * old;
    result.error[index] = with_rounding(error, 3, std::abs(fresh) + std::abs(old), precision);
  }
  return result;
}

// p old + (1 - p) new.
Values zoned(double p, const Values& old, const Values& fresh, const Precision& precision) {
  Values weight(fresh.size());
  std::fill(weight.value.begin(), weight.value.end(), p);
  return blended(weight, fresh, old, precision);
}

// Products of the rows of some gates, normalised where the cell normalises. A normalisation is over all the rows that
// one product has.
class Gates {
 public:
  Gates(const Cell& cell, const Direction& direction, const Precision& precision, const StepInput& input)
      : cell_(cell), direction_(direction), precision_(precision), input_(input) {
    hidden_ = direction.weight_h.rows / gates_of(cell.kind);
    const int64_t all = direction.weight_x.rows;
    x_ = sums(direction.weight_x, 0, all, input.x, direction.norm_x);
    // A GRU with its reset gate before the product multiplies the rows of n with another vector, later.
    const bool split = cell.kind == Kind::kGru && !cell.reset_after;
    h_ = sums(direction.weight_h, 0, split ? 2 * hidden_ : all, input.products, direction.norm_h);
  }

  int64_t hidden() const { return hidden_; }

  /// X of one gate, with its bias.
  Sums x(int gate) const {
    Sums result = part(x_, gate);
    add(result, direction_.bias_x, gate * hidden_);
    return result;
  }
  /// H of one gate, without its bias.
  Sums h(int gate) const { return part(h_, gate); }
  /// W_hn times another vector.
  Sums h_of(int gate, const Values& vector) const {
    return sums(direction_.weight_h, gate * hidden_, hidden_, vector, direction_.norm_h);
  }
  void add_bias_h(Sums& target, int gate) const { add(target, direction_.bias_h, gate * hidden_); }

  /// X + H and what more there is.
  Sums both(int gate) const {
    Sums result = x(gate);
    add(result, h_, gate * hidden_);
    add_bias_h(result, gate);
    return result;
  }
  Values number(const Sums& terms) const {
    return rounded(terms, input_.x.size() + input_.products.size(), precision_);
  }
  Values activated_by(const Activation& activation, const Sums& terms) const {
    return activated(activation, cell_.clip, number(terms), precision_);
  }

 private:
  Sums sums(const Matrix& matrix, int64_t first, int64_t count, const Values& vector,
            const std::vector<double>& gain) const {
    Sums result = cell_.operand_bits == 0 ? product(matrix, first, count, vector)
                                          : product(matrix, first, count, rounded_operand(vector));
    if (!cell_.norm_eps) return result;
    return normalised(rounded(result, vector.size(), precision_), *cell_.norm_eps, gain, first, precision_);
  }
  Values rounded_operand(Values vector) const {
    const auto round = [&](double value) { return round_to_bits(value, cell_.operand_bits); };
    for (int64_t index = 0; index < vector.size(); ++index) {
      const double value = vector.value[index], error = vector.error[index];
      vector.value[index] = round(value);
      // An error may carry it over to the next number.
      if (error != 0) vector.error[index] = round(value + error) - round(value - error);
    }
    return vector;
  }
  Sums part(const Sums& whole, int gate) const {
    const auto first = gate * hidden_, last = first + hidden_;
    return {{whole.value.begin() + first, whole.value.begin() + last},
            {whole.magnitude.begin() + first, whole.magnitude.begin() + last},
            {whole.error.begin() + first, whole.error.begin() + last}};
  }

  const Cell& cell_;
  const Direction& direction_;
  const Precision& precision_;
  const StepInput& input_;
  int64_t hidden_ = 0;
  Sums x_, h_;
};

Values gru_candidate(const Cell& cell, const Precision& precision, const StepInput& input, const Gates& gates,
                     const Values& reset) {
  if (!cell.reset_after) {
    Sums terms = gates.x(2);
    add(terms, gates.h_of(2, times(reset, input.products, precision)));
    gates.add_bias_h(terms, 2);
    return gates.activated_by(cell.activation, terms);
  }
  Sums inner = gates.h(2), outer = gates.x(2);
  gates.add_bias_h(cell.bias_outside_reset ? outer : inner, 2);
  const Values sum = plus(gates.number(outer), times(reset, gates.number(inner), precision), precision);
  return activated(cell.activation, cell.clip, sum, precision);
}

void gru(const Cell& cell, const Precision& precision, const StepInput& input, const Gates& gates, StepResult& result) {
  auto& [r, z, n, unused] = result.gates;
  r = gates.activated_by(cell.gate, gates.both(0));
  z = gates.activated_by(cell.gate, gates.both(1));
  n = gru_candidate(cell, precision, input, gates, r);
  result.h = clamped(cell.swapped_update ? blended(one_minus(z, precision), n, input.blend, precision)
                                         : blended(z, n, input.blend, precision),
                     cell.cell_clip);
}

// What goes into a gate of an LSTM, with the peephole of `which` on a cell state.
Sums lstm_terms(const Direction& direction, const Gates& gates, int gate, int which, const Values* state) {
  Sums terms = gates.both(gate);
  if (direction.peepholes.empty() || !state) return terms;
  for (int64_t index = 0; index < terms.size(); ++index) {
    const double weight = direction.peepholes[which * gates.hidden() + index];
    terms.value[index] += weight * state->value[index];
    terms.magnitude[index] += std::abs(weight * state->value[index]);
    terms.error[index] += std::abs(weight) * state->error[index];
  }
  return terms;
}

Values lstm_output_state(const Cell& cell, const Direction& direction, const Precision& precision, const Values& c) {
  if (!cell.norm_eps) return activated(cell.output, INFINITY, c, precision);
  Sums terms = normalised(c, *cell.norm_eps, direction.norm_c, 0, precision);
  add(terms, direction.norm_c_bias, 0);
  return activated(cell.output, INFINITY, rounded(terms, 1, precision), precision);
}

void lstm(const Cell& cell, const Direction& direction, const Precision& precision, const StepInput& input,
          const Gates& gates, StepResult& result) {
  auto& [i, f, g, o] = result.gates;
  if (cell.coupled != Coupled::kForget)
    i = gates.activated_by(cell.gate, lstm_terms(direction, gates, 0, 0, &input.cell));
  if (cell.coupled != Coupled::kInput) {
    Sums terms = lstm_terms(direction, gates, 1, 1, &input.cell);
    for (double& value : terms.value) value += cell.forget_bias;
    for (double& magnitude : terms.magnitude) magnitude += std::abs(cell.forget_bias);
    f = gates.activated_by(cell.gate, terms);
  }
  if (cell.coupled == Coupled::kInput) f = one_minus(i, precision);
  if (cell.coupled == Coupled::kForget) i = one_minus(f, precision);
  g = gates.activated_by(cell.activation, gates.both(2));
  result.c = clamped(plus(times(f, input.cell, precision), times(i, g, precision), precision), cell.cell_clip);
  o = gates.activated_by(cell.gate, lstm_terms(direction, gates, 3, 2, &result.c));
  result.h = times(o, lstm_output_state(cell, direction, precision, result.c), precision);
  if (direction.projection.empty()) return;
  const Sums projected = product(direction.projection, 0, direction.projection.rows, result.h);
  result.h = rounded(projected, direction.projection.columns, precision);
}

}  // namespace

StepResult step(const Cell& cell, const Direction& direction, const Precision& precision, const StepInput& input) {
  StepResult result;
  const Gates gates(cell, direction, precision, input);
  switch (cell.kind) {
    case Kind::kGru:
      gru(cell, precision, input, gates, result);
      break;
    case Kind::kLstm:
      lstm(cell, direction, precision, input, gates, result);
      break;
    case Kind::kRnn:
      result.h = clamped(gates.activated_by(cell.activation, gates.both(0)), cell.cell_clip);
      break;
  }
  if (cell.zoneout[0] != 0) result.h = zoned(cell.zoneout[0], input.blend, result.h, precision);
  if (cell.zoneout[1] != 0) result.c = zoned(cell.zoneout[1], input.cell, result.c, precision);
  return result;
}

}  // namespace weft::verify
