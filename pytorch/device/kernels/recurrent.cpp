// Recurrent modules on the device: a layer is one call of weft::call, as on the CPU, and so is a single step. PyTorch
// takes the device for a GPU, and calls fused cells for it where Weft has no program.
//
// Sequences of different lengths are packed for them, and padded again. The lengths are on the CPU, where they are read
// when the operation is called. What is recorded is one choice of rows, whose numbers are an input of the program.

#include "device/kernels/recurrent.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_pack_padded_sequence_backward_native.h>
#include <ATen/ops/_pad_packed_sequence_native.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "device/call.h"
#include "device/graph/storage.h"
#include "device/kernels/libraries.h"
#include "device/run/run.h"
#include "override/run.h"
#include "override/state.h"
#include "record/cells.h"

namespace weft::device {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor with_bias(const Tensor& x, const OptionalTensor& bias) { return bias && bias->defined() ? x + *bias : x; }

/// The second result is for CUDA's backward. It is unused here, where autograd differentiates the operations
/// themselves.
std::tuple<Tensor, Tensor> fused_gru_cell(const Tensor& x, const Tensor& y, const Tensor& h, const OptionalTensor& b_x,
                                          const OptionalTensor& b_y) {
  return {record::gru_from_gates(with_bias(x, b_x), with_bias(y, b_y), h), at::empty({0}, h.options())};
}

std::tuple<Tensor, Tensor, Tensor> fused_lstm_cell(const Tensor& x, const Tensor& y, const Tensor& c,
                                                   const OptionalTensor& b_x, const OptionalTensor& b_y) {
  auto [h, next] = record::lstm_from_gates(with_bias(x, b_x) + with_bias(y, b_y), c);
  return {h, next, at::empty({0}, c.options())};
}

void register_cells(torch::Library& m) {
  m.impl("_thnn_fused_gru_cell", fused_gru_cell);
  m.impl("_thnn_fused_lstm_cell", fused_lstm_cell);
}

// ---- packing

/// A vector of integers on the CPU.
at::IntArrayRef numbers_in(const Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), static_cast<size_t>(tensor.numel())};
}

bool is_list_of_numbers(const Tensor& tensor) {
  return tensor.dim() == 1 && tensor.is_cpu() && tensor.scalar_type() == at::kLong && tensor.is_contiguous() &&
         tensor.numel() > 0;
}

/// Whether the numbers don't increase, and the last one is at least 1.
bool are_falling(at::IntArrayRef numbers) {
  return std::ranges::is_sorted(numbers, std::greater<>()) && numbers.back() > 0;
}

/// For each packed row its index among the padded rows, which are ordered by step, then by sequence (`batch_first`: by
/// sequence, then by step).
Tensor packed_places(at::IntArrayRef batch_sizes, int64_t steps, int64_t sequences, bool batch_first) {
  int64_t rows = 0;
  for (int64_t size : batch_sizes) rows += size;
  Tensor found = at::empty({rows}, at::kLong);
  int64_t* next = found.mutable_data_ptr<int64_t>();
  for (int64_t t = 0; t < static_cast<int64_t>(batch_sizes.size()); ++t)
    for (int64_t b = 0; b < batch_sizes[static_cast<size_t>(t)]; ++b)
      *next++ = batch_first ? b * steps + t : t * sequences + b;
  count_bytes(found.nbytes());
  return make_tensor(known(std::move(found)));
}

/// [steps, sequences, ...] or [sequences, steps, ...] as [steps * sequences, ...].
Tensor padded_rows(const Tensor& padded) { return padded.flatten(0, 1); }

/// `rows` with its first dim split into two. No other tensor may have the storage of `rows`, since the storage gets the
/// new shape.
Tensor as_padded(const Tensor& rows, int64_t first, int64_t second) {
  Tensor padded = rows.unflatten(0, {first, second});
  storage_of(padded).reshape(padded.scalar_type(), padded.sizes());
  return padded;
}

/// The number of sequences that step t still has, for each step.
Tensor batch_sizes_of(at::IntArrayRef lengths) {
  Tensor found = at::empty({lengths[0]}, at::kLong);
  int64_t* sizes = found.mutable_data_ptr<int64_t>();
  size_t left = lengths.size();
  for (int64_t t = 0; t < lengths[0]; ++t) {
    while (lengths[left - 1] <= t) --left;
    sizes[t] = static_cast<int64_t>(left);
  }
  return found;
}

/// _pack_padded_sequence_backward(grad, input_size, batch_sizes, batch_first)
Tensor pack_backward(const Tensor& grad, c10::SymIntArrayRef input_size, const Tensor& batch_sizes, bool batch_first) {
  if (!has_values(grad) || !is_list_of_numbers(batch_sizes))
    return at::native::_pack_padded_sequence_backward_symint(grad, input_size, batch_sizes, batch_first);
  const auto sizes = C10_AS_INTARRAYREF_SLOW(input_size);
  auto flat = sizes.slice(1).vec();
  flat[0] *= sizes[0];
  const Tensor index =
      packed_places(numbers_in(batch_sizes), sizes[batch_first ? 1 : 0], sizes[batch_first ? 0 : 1], batch_first);
  return as_padded(at::zeros(flat, grad.options()).index_copy(0, index, grad), sizes[0], sizes[1]);
}

/// The lengths of the sequences, of which batch_sizes[t] have a step t.
Tensor lengths_of(at::IntArrayRef batch_sizes) {
  Tensor found = at::empty({batch_sizes[0]}, at::kLong);
  int64_t* lengths = found.mutable_data_ptr<int64_t>();
  size_t steps = batch_sizes.size();
  for (int64_t b = 0; b < batch_sizes[0]; ++b) {
    while (batch_sizes[steps - 1] <= b) --steps;
    lengths[b] = static_cast<int64_t>(steps);
  }
  return found;
}

/// _pad_packed_sequence(data, batch_sizes, batch_first, padding_value, total_length)
std::tuple<Tensor, Tensor> pad_packed(const Tensor& data, const Tensor& batch_sizes, bool batch_first,
                                      const at::Scalar& padding, int64_t total_length) {
  auto by_pytorch = [&] {
    return at::native::_pad_packed_sequence(data, batch_sizes, batch_first, padding, total_length);
  };
  if (!has_values(data) || data.dim() == 0 || !is_list_of_numbers(batch_sizes)) return by_pytorch();
  const at::IntArrayRef sizes = numbers_in(batch_sizes);
  const auto steps = static_cast<int64_t>(sizes.size());
  const bool has_length = total_length <= 0 || total_length >= steps;
  if (!are_falling(sizes) || !has_length || c10::multiply_integers(data.sizes()) == 0) return by_pytorch();
  const Tensor index = packed_places(sizes, steps, sizes[0], false);
  if (index.size(0) != data.size(0)) return by_pytorch();
  const int64_t padded_steps = std::max(steps, total_length);
  auto flat = data.sizes().vec();
  flat[0] = padded_steps * sizes[0];
  const Tensor rows = at::full(flat, padding, data.options()).index_copy(0, index, data);
  const Tensor padded = as_padded(rows, padded_steps, sizes[0]);
  return {batch_first ? padded.transpose(0, 1) : padded, lengths_of(sizes)};
}

void register_packing(torch::Library& m) {
  m.impl("_pack_padded_sequence_backward", pack_backward);
  m.impl("_pad_packed_sequence", pad_packed);
}

}  // namespace

void pack(const Operator& op, torch::jit::Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const Tensor input = arguments[0].toTensor(), lengths = arguments[1].toTensor();
  const bool batch_first = arguments[2].toBool();
  auto is_usual = [&] {
    if (!has_values(input) || input.dim() < 2 || input.numel() == 0 || !is_list_of_numbers(lengths)) return false;
    const at::IntArrayRef numbers = numbers_in(lengths);
    return are_falling(numbers) && lengths.size(0) == input.size(batch_first ? 0 : 1) &&
           numbers[0] <= input.size(batch_first ? 1 : 0);
  };
  // PyTorch's own says in its words what is wrong.
  if (!is_usual()) return op.handle.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
  const Tensor batch_sizes = batch_sizes_of(numbers_in(lengths));
  const Tensor index =
      packed_places(numbers_in(batch_sizes), input.size(batch_first ? 1 : 0), lengths.size(0), batch_first);
  put(stack, op.arguments(), {at::index_select(padded_rows(input), 0, index), batch_sizes});
}

void register_recurrent_modules() {
  override_kernels::set_has_device();
  register_for_device([](torch::Library& library) {
    register_cells(library);
    register_packing(library);
    override_kernels::register_cells_on_device(library);
    override_kernels::register_on_device(library);
  });
}

}  // namespace weft::device
