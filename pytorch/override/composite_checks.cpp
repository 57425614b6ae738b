#include "override/composite_checks.h"

#include <numeric>

namespace weft::override_kernels {
namespace {

using at::Tensor;
using Form = RnnConfig::Form;

std::string op_name(Cell cell, Form form) { return name_of(cell) + (form == Form::kStep ? "_cell" : ""); }

void check_dims(const std::string& op, const Tensor& tensor, const std::string& what, int64_t dims) {
  TORCH_CHECK(tensor.defined(), op, ": ", what, " is undefined");
  TORCH_CHECK(tensor.dim() == dims, op, ": ", what, " must have ", dims, " dims, but has ", tensor.dim());
}

/// A size that is wanted; none where any size will do.
using KnownSize = std::optional<int64_t>;

bool is(const c10::SymInt& size, KnownSize wanted) {
  const auto known = size.maybe_as_int();
  return !known || !wanted || *known == *wanted;
}

void check_sizes(const std::string& op, const Tensor& tensor, const std::string& what,
                 std::initializer_list<KnownSize> sizes) {
  check_dims(op, tensor, what, std::ssize(sizes));
  int64_t dim = 0;
  for (const KnownSize& wanted : sizes) {
    TORCH_CHECK(is(tensor.sym_size(dim), wanted), op, ": size ", dim, " of ", what, " must be ", wanted.value_or(0),
                ", but is ", tensor.sym_size(dim));
    ++dim;
  }
}

/// Weights are chunked into gates. PyTorch's composites read a chunk even if it isn't there.
void check_gates(const RnnCall& call, const std::string& op) {
  const int64_t gates = gates_of(call.cell);
  if (gates == 1) return;
  for (size_t i = 0; i < call.params.size(); ++i) {
    const Tensor& weight = call.params[i];
    TORCH_CHECK(weight.defined(), op, ": parameter ", i, " is undefined");
    if (call.form == Form::kStep) check_dims(op, weight, "parameter " + std::to_string(i), 2);
    if (weight.dim() != 2) continue;
    const auto rows = weight.sym_size(0).maybe_as_int();
    const bool is_projection = call.cell == Cell::kLstm && call.form != Form::kStep;  // checked with all sizes
    TORCH_CHECK(is_projection || !rows || *rows % gates == 0, op, ": parameter ", i, " must have rows for ", gates,
                " gates, but has ", *rows);
  }
}

void check_batch_sizes(const RnnCall& call, const std::string& op) {
  const Tensor& sizes = *call.batch_sizes;
  check_dims(op, sizes, "batch_sizes", 1);
  TORCH_CHECK(sizes.scalar_type() == at::kLong, op, ": batch_sizes must be of int64, but are of ", sizes.scalar_type());
  TORCH_CHECK(!is(sizes.sym_size(0), 0) || !sizes.sym_size(0).maybe_as_int(), op,
              ": batch_sizes must have an element for each step, but have none");
  TORCH_CHECK(may_be_traced(sizes) || sizes.is_cpu(), op, ": batch_sizes must be on the CPU, but are on ",
              sizes.device());
  if (call.cell != Cell::kLstm || !known_batch_sizes(call)) return;
  const std::span<const int64_t> known(known_batch_sizes(call), static_cast<size_t>(sizes.size(0)));
  TORCH_CHECK(is(call.states[0].sym_size(1), known[0]), op, ": the first of batch_sizes must be the states' batch, ",
              call.states[0].sym_size(1), ", but is ", known[0]);
  TORCH_CHECK(std::ranges::is_sorted(known, std::greater()) && known.back() > 0, op,
              ": batch_sizes must be positive and not increase");
  const int64_t rows = std::accumulate(known.begin(), known.end(), int64_t{0});
  TORCH_CHECK(is(call.input.sym_size(0), rows), op, ": batch_sizes add up to ", rows, " rows, but the input has ",
              call.input.sym_size(0));
}

/// Checks all sizes of an LSTM's parameters and states.
void check_lstm(const RnnCall& call, const std::string& op) {
  const Tensor &h = call.states[0], &c = call.states[1];
  const auto output = h.sym_size(2).maybe_as_int(), hidden = c.sym_size(2).maybe_as_int();
  const bool is_projected = output && hidden && *output != *hidden;
  const auto count = static_cast<int64_t>(call.params.size()), directions = int64_t{call.bidirectional ? 2 : 1};
  const int64_t of_one = 2 + (call.has_biases ? 2 : 0) + (is_projected ? 1 : 0);
  TORCH_CHECK(call.layers >= 1 && call.layers <= count && count == call.layers * directions * of_one, op,
              ": got an incorrect number of RNN parameters: ", count);
  const int64_t parts = call.layers * directions;
  const c10::SymInt given = call.form == Form::kPacked ? h.sym_size(1) : call.input.sym_size(call.batch_first ? 0 : 1);
  const KnownSize batch = given.maybe_as_int();
  check_sizes(op, h, "hx[0]", {parts, batch, output});
  check_sizes(op, c, "hx[1]", {parts, batch, hidden});
  const KnownSize rows = hidden ? KnownSize(4 * *hidden) : std::nullopt;
  KnownSize input = call.input.sym_size(-1).maybe_as_int();
  size_t next = 0;
  auto check_next = [&](std::initializer_list<KnownSize> sizes) {
    check_sizes(op, call.params[next], "parameter " + std::to_string(next), sizes);
    ++next;
  };
  for (int64_t part = 0; part < parts; ++part) {
    if (part == directions) input = output ? KnownSize(directions * *output) : std::nullopt;
    check_next({rows, input});
    check_next({rows, output});
    for (int64_t bias = 0; bias < (call.has_biases ? 2 : 0); ++bias) check_next({rows});
    if (is_projected) check_next({output, hidden});
  }
}

}  // namespace

void check_dims_and_states(Cell cell, Form form, const Tensor& input, at::TensorList states) {
  const std::string op = op_name(cell, form);
  TORCH_CHECK(states.size() == carries_of(cell), op, ": hx must be ",
              carries_of(cell) == 1 ? "one state" : "two states, (h, c)", ", but there are ", states.size());
  const int64_t dims = form == Form::kStep ? 2 : 3;
  check_dims(op, input, "input", form == Form::kPadded ? 3 : 2);
  for (size_t i = 0; i < states.size(); ++i)
    check_dims(op, states[i], states.size() == 1 ? "hx" : "hx[" + std::to_string(i) + "]", dims);
  if (form == Form::kStep || states.size() == 1) return;
  TORCH_CHECK(is(states[0].sym_size(0), states[1].sym_size(0).maybe_as_int()), op,
              ": hx[0] and hx[1] must be of as many layers, but are of ", states[0].sym_size(0), " and ",
              states[1].sym_size(0));
}

void check_before_composite(const RnnCall& call) {
  const std::string op = op_name(call.cell, call.form);
  check_dims_and_states(call.cell, call.form, call.input, call.states);
  check_gates(call, op);
  if (call.batch_sizes) check_batch_sizes(call, op);
  if (call.form == Form::kStep) return;
  const auto layers = call.states[0].sym_size(0).maybe_as_int();
  TORCH_CHECK(!layers || call.layers <= *layers, op, ": hx must be of ", call.layers, " layers, but is of ", *layers);
  if (call.cell == Cell::kLstm) check_lstm(call, op);
}

}  // namespace weft::override_kernels
