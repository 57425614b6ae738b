#include "verify/step.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::verify {
namespace {

Values clamped(Values x, double bound) {
  if (std::isinf(bound)) return x;
  for (double& value : x.value) value = value < -bound ? -bound : value > bound ? bound : value;
  return x;
}

// a * b, rounded.
Values times(const Values& a, const Values& b, const Precision& precision) {
  Values result(a.size(), a.bounded);
  for (int64_t index = 0; index < a.size(); ++index) result.value[index] = a.value[index] * b.value[index];
  if (!a.bounded) return result;
  for (int64_t index = 0; index < a.size(); ++index) {
    const double error = std::abs(a.value[index]) * b.error[index] + std::abs(b.value[index]) * a.error[index] +
                         a.error[index] * b.error[index];
    result.error[index] = with_rounding(error, 1, std::abs(result.value[index]), precision);
  }
  return result;
}

Values plus(const Values& a, const Values& b, const Precision& precision) {
  Values result(a.size(), a.bounded);
  for (int64_t index = 0; index < a.size(); ++index) result.value[index] = a.value[index] + b.value[index];
  if (!a.bounded) return result;
  for (int64_t index = 0; index < a.size(); ++index) {
    const double magnitude = std::abs(a.value[index]) + std::abs(b.value[index]);
    result.error[index] = with_rounding(a.error[index] + b.error[index], 1, magnitude, precision);
  }
  return result;
}

Values one_minus(const Values& a, const Precision& precision) {
  Values result(a.size(), a.bounded);
  for (int64_t index = 0; index < a.size(); ++index) result.value[index] = 1 - a.value[index];
  if (!a.bounded) return result;
  for (int64_t index = 0; index < a.size(); ++index) {
    result.error[index] = with_rounding(a.error[index], 1, std::abs(result.value[index]), precision);
  }
  return result;
}

// (1 - z) n + z h. Both terms have the same error of z in them, with opposite signs.
Values blended(const Values& z, const Values& n, const Values& h, const Precision& precision) {
  Values result(z.size(), n.bounded);
  for (int64_t index = 0; index < z.size(); ++index)
    result.value[index] = (1 - z.value[index]) * n.value[index] + z.value[index] * h.value[index];
  if (!n.bounded) return result;
  for (int64_t index = 0; index < z.size(); ++index) {
    const double update = z.value[index], fresh = n.value[index], old = h.value[index];
    const double spread = std::abs(old - fresh) + n.error[index] + h.error[index];
    const double error =
        std::abs(1 - update) * n.error[index] + std::abs(update) * h.error[index] + z.error[index] * spread;
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

Sums no_terms(int64_t size, bool bounded) {
  const std::vector<double> bounds(bounded ? size : 0);
  return {std::vector<double>(size), bounds, bounds, bounded};
}

Sums scaled(Sums terms, double factor) {
  if (factor == 1) return terms;
  if (factor == 0) return no_terms(terms.size(), terms.bounded);
  for (double& value : terms.value) value *= factor;
  for (std::vector<double>* part : {&terms.magnitude, &terms.error})
    for (double& value : *part) value *= std::abs(factor);
  return terms;
}

void add_number(Sums& target, double number) {
  if (number == 0) return;
  for (double& value : target.value) value += number;
  for (double& magnitude : target.magnitude) magnitude += std::abs(number);
}

// Products of the rows of some gates, normalised where the cell normalises. A normalisation is over all rows of one
// product.
class Gates {
 public:
  Gates(const Cell& cell, const Direction& direction, const Precision& precision, const StepInput& input)
      : cell_(cell), direction_(direction), precision_(precision), input_(input) {
    hidden_ = direction.weight_h.rows / gates_of(cell.kind);
    const int64_t all = direction.weight_x.rows;
    x_ = sums(direction.weight_x, 0, all, input.x, direction.norm_x);
    // A GRU with its reset gate before the product multiplies the rows of n by another vector, later.
    const bool split = cell.kind == Kind::kGru && !cell.reset_after;
    h_ = sums(direction.weight_h, 0, split ? 2 * hidden_ : all, input.products, direction.norm_h);
  }

  int64_t hidden() const { return hidden_; }

  const GateFault& fault(int gate) const { return cell_.faults[gate]; }
  /// x's product for one gate, times the fault's factor plus its offset, without the bias.
  Sums x(int gate) const {
    Sums result = scaled(part(*x_, gate), fault(gate).input);
    add_number(result, fault(gate).offset);
    return result;
  }
  /// h's product for one gate, without its bias.
  Sums h(int gate) const { return scaled(part(*h_, gate), fault(gate).recurrent); }
  /// W_hn times another vector.
  Sums h_of(int gate, const Values& vector) const {
    return scaled(*sums(direction_.weight_h, gate * hidden_, hidden_, vector, direction_.norm_h),
                  fault(gate).recurrent);
  }
  void add_bias_x(Sums& target, int gate) const { add_bias(target, direction_.bias_x, gate, fault(gate).input_bias); }
  void add_bias_h(Sums& target, int gate) const {
    add_bias(target, direction_.bias_h, gate, fault(gate).recurrent_bias);
  }

  /// X + H and further terms.
  Sums both(int gate) const {
    Sums result = x(gate);
    add(result, h(gate));
    add_bias_x(result, gate);
    add_bias_h(result, gate);
    return result;
  }
  Values number(const Sums& terms) const {
    return rounded(terms, input_.x.size() + input_.products.size(), precision_);
  }
  Values activated_by(const Activation& activation, int gate, const Values& x) const {
    return activated(fault(gate).activation.value_or(activation), fault(gate).clip.value_or(cell_.clip), x, precision_);
  }
  Values activated_by(const Activation& activation, int gate, const Sums& terms) const {
    return activated_by(activation, gate, number(terms));
  }

 private:
  std::shared_ptr<const Sums> sums(const Matrix& matrix, int64_t first, int64_t count, const Values& vector,
                                   const std::vector<double>& gain) const {
    std::shared_ptr<const Sums> result = cell_.operand_bits == 0
                                             ? product_of(matrix, first, count, vector)
                                             : product_of(matrix, first, count, rounded_operand(vector));
    if (!cell_.norm_eps) return result;
    return std::make_shared<const Sums>(
        normalised(rounded(*result, vector.size(), precision_), *cell_.norm_eps, gain, first, precision_));
  }
  std::shared_ptr<const Sums> product_of(const Matrix& matrix, int64_t first, int64_t count,
                                         const Values& vector) const {
    if (input_.cache) return input_.cache->product(matrix, first, count, vector);
    return std::make_shared<const Sums>(product(matrix, first, count, vector));
  }
  Values rounded_operand(Values vector) const {
    const auto round = [&](double value) { return round_to_bits(value, cell_.operand_bits); };
    if (!vector.bounded) {
      for (double& value : vector.value) value = round(value);
      return vector;
    }
    for (int64_t index = 0; index < vector.size(); ++index) {
      const double value = vector.value[index], error = vector.error[index];
      vector.value[index] = round(value);
      // An error may make the value round to another number.
      if (error != 0) vector.error[index] = round(value + error) - round(value - error);
    }
    return vector;
  }
  void add_bias(Sums& target, const std::vector<double>& bias, int gate, double factor) const {
    if (factor == 1) return add(target, bias, gate * hidden_);
    if (bias.empty()) return;
    Sums terms = no_terms(hidden_, target.bounded);
    add(terms, bias, gate * hidden_);
    add(target, scaled(std::move(terms), factor));
  }
  Sums part(const Sums& whole, int gate) const {
    const auto first = gate * hidden_, last = first + hidden_;
    if (!whole.bounded) return {{whole.value.begin() + first, whole.value.begin() + last}, {}, {}, false};
    return {{whole.value.begin() + first, whole.value.begin() + last},
            {whole.magnitude.begin() + first, whole.magnitude.begin() + last},
            {whole.error.begin() + first, whole.error.begin() + last}};
  }

  const Cell& cell_;
  const Direction& direction_;
  const Precision& precision_;
  const StepInput& input_;
  int64_t hidden_ = 0;
  std::shared_ptr<const Sums> x_, h_;
};

// Adds n's two biases to the sums outside and inside of the reset gate.
void add_biases(Biases biases, const Gates& gates, Sums& outer, Sums& inner) {
  const bool input_in = biases == Biases::kExchanged || biases == Biases::kInside || biases == Biases::kInputInBoth;
  const bool recurrent_in =
      biases == Biases::kInPlace || biases == Biases::kInside || biases == Biases::kRecurrentInBoth;
  const bool input_out = biases == Biases::kInPlace || biases == Biases::kOutside || biases == Biases::kInputInBoth;
  const bool recurrent_out =
      biases == Biases::kExchanged || biases == Biases::kOutside || biases == Biases::kRecurrentInBoth;
  if (input_out) gates.add_bias_x(outer, 2);
  if (recurrent_out) gates.add_bias_h(outer, 2);
  if (input_in) gates.add_bias_x(inner, 2);
  if (recurrent_in) gates.add_bias_h(inner, 2);
}

Values gru_candidate(const Cell& cell, const Precision& precision, const StepInput& input, const Gates& gates,
                     const Values& reset) {
  if (!cell.reset_after) {
    Sums terms = gates.x(2);
    add(terms, gates.h_of(2, times(reset, input.products, precision)));
    gates.add_bias_x(terms, 2);
    gates.add_bias_h(terms, 2);
    return gates.activated_by(cell.activation, 2, terms);
  }
  Sums inner = gates.h(2), outer = gates.x(2);
  add_biases(cell.biases, gates, outer, inner);
  const Values sum = plus(gates.number(outer), times(reset, gates.number(inner), precision), precision);
  return gates.activated_by(cell.activation, 2, sum);
}

void gru(const Cell& cell, const Precision& precision, const StepInput& input, const Gates& gates, StepResult& result) {
  auto& [r, z, n, unused] = result.gates;
  r = gates.activated_by(cell.gate, 0, gates.both(0));
  z = gates.activated_by(cell.gate, 1, gates.both(1));
  n = gru_candidate(cell, precision, input, gates, r);
  result.h = clamped(cell.swapped_update ? blended(one_minus(z, precision), n, input.blend, precision)
                                         : blended(z, n, input.blend, precision),
                     cell.cell_clip);
}

// The sum of a gate of an LSTM, with the peephole `which` on a cell state.
Sums lstm_terms(const Direction& direction, const Gates& gates, int gate, int which, const Values& state) {
  Sums terms = gates.both(gate);
  if (direction.peepholes.empty()) return terms;
  for (int64_t index = 0; index < terms.size(); ++index) {
    const double weight = gates.fault(gate).peephole * direction.peepholes[which * gates.hidden() + index];
    terms.value[index] += weight * state.value[index];
    if (!terms.bounded) continue;
    terms.magnitude[index] += std::abs(weight * state.value[index]);
    terms.error[index] += std::abs(weight) * state.error[index];
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
    i = gates.activated_by(cell.gate, 0, lstm_terms(direction, gates, 0, 0, input.cell));
  if (cell.coupled != Coupled::kInput)
    f = gates.activated_by(cell.gate, 1, lstm_terms(direction, gates, 1, 1, input.cell));
  if (cell.coupled == Coupled::kInput) f = one_minus(i, precision);
  if (cell.coupled == Coupled::kForget) i = one_minus(f, precision);
  g = gates.activated_by(cell.activation, 2, gates.both(2));
  result.c = clamped(plus(times(f, input.cell, precision), times(i, g, precision), precision), cell.cell_clip);
  o = gates.activated_by(cell.gate, 3, lstm_terms(direction, gates, 3, 2, result.c));
  result.h = times(o, lstm_output_state(cell, direction, precision, result.c), precision);
  if (!direction.projection.empty()) {
    const Sums projected = product(direction.projection, 0, direction.projection.rows, result.h);
    result.h = rounded(projected, direction.projection.columns, precision);
  }
  result.h = clamped(std::move(result.h), cell.output_clip);
}

}  // namespace

std::shared_ptr<const Sums> ProductCache::product(const Matrix& matrix, int64_t first, int64_t count, const Values& x) {
  for (const Entry& each : entries_) {
    const bool same = each.matrix.is(matrix.values) && each.first == first && each.count == count;
    if (same && each.x.value == x.value && each.x.error == x.error) return each.sums;
  }
  constexpr size_t kEntries = 24;  // a few steps of a few rows; a search seldom looks beyond these
  work += (x.bounded ? 1 : kUnbounded) * static_cast<double>(count) * static_cast<double>(matrix.columns);
  auto result = std::make_shared<const Sums>(verify::product(matrix, first, count, x));
  Entry entry{matrix.values, first, count, x, result};
  if (entries_.size() < kEntries)
    entries_.push_back(std::move(entry));
  else
    entries_[next_++ % kEntries] = std::move(entry);
  return result;
}

StepResult step(const Cell& cell, const Direction& direction, const Precision& precision, const StepInput& input) {
  StepResult result;
  if (input.cache) input.cache->count_step(direction.weight_h.rows, input.x.bounded);
  const Gates gates(cell, direction, precision, input);
  switch (cell.kind) {
    case Kind::kGru:
      gru(cell, precision, input, gates, result);
      break;
    case Kind::kLstm:
      lstm(cell, direction, precision, input, gates, result);
      break;
    case Kind::kRnn:
      result.h = clamped(gates.activated_by(cell.activation, 0, gates.both(0)), cell.cell_clip);
      break;
  }
  if (cell.zoneout[0] != 0) result.h = zoned(cell.zoneout[0], input.blend, result.h, precision);
  if (cell.zoneout[1] != 0) result.c = zoned(cell.zoneout[1], input.cell, result.c, precision);
  return result;
}

}  // namespace weft::verify
