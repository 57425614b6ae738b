// Kernels of aten::gru, lstm, rnn_tanh and rnn_relu, on a padded tensor (`input`) and on packed rows (`data`), for CPU
// and AutogradCPU. Calls that they don't cover run on PyTorch's composite. So do wrong calls, since PyTorch has the
// error messages. Wrong calls that would crash PyTorch's composites are refused (composite_checks.h).

#include <ATen/ops/gru_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/lstm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rnn_relu_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rnn_tanh_compositeimplicitautograd_dispatch.h>

#include "base/error.h"
#include "override/composite_checks.h"
#include "override/run.h"
#include "record/recording_tensor.h"

namespace weft::override_kernels {
namespace {

using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;
using OneState = std::tuple<Tensor, Tensor>;
using TwoStates = std::tuple<Tensor, Tensor, Tensor>;

RnnCall padded(Cell cell, const Tensor& input, TensorList states, TensorList params, bool has_biases, int64_t layers,
               double dropout, bool train, bool bidirectional, bool batch_first) {
  return {cell,   input,   nullptr, states,        params,      has_biases,
          layers, dropout, train,   bidirectional, batch_first, RnnConfig::Form::kPadded};
}

RnnCall packed(Cell cell, const Tensor& data, const Tensor& batch_sizes, TensorList states, TensorList params,
               bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  return {cell,   data,    &batch_sizes, states,        params, has_biases,
          layers, dropout, train,        bidirectional, false,  RnnConfig::Form::kPacked};
}

using PaddedComposite = OneState (*)(const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool, bool, bool);
using PackedComposite = OneState (*)(const Tensor&, const Tensor&, const Tensor&, TensorList, bool, int64_t, double,
                                     bool, bool);
using LstmPadded = TwoStates (*)(const Tensor&, TensorList, TensorList, bool, int64_t, double, bool, bool, bool);
using LstmPacked = TwoStates (*)(const Tensor&, const Tensor&, TensorList, TensorList, bool, int64_t, double, bool,
                                 bool);
namespace composite = at::compositeimplicitautograd;

/// PyTorch's composites, after the checks that they lack.
template <Cell cell, PaddedComposite run>
OneState checked_padded(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases, int64_t layers,
                        double dropout, bool train, bool bidirectional, bool batch_first) {
  check_before_composite(
      padded(cell, input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first));
  return run(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
}

template <Cell cell, PackedComposite run>
OneState checked_packed(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params,
                        bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  check_before_composite(
      packed(cell, data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional));
  return run(data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional);
}

TwoStates checked_lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t layers,
                       double dropout, bool train, bool bidirectional, bool batch_first) {
  check_before_composite(
      padded(Cell::kLstm, input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first));
  return composite::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
}

TwoStates checked_lstm_packed(const Tensor& data, const Tensor& batch_sizes, TensorList hx, TensorList params,
                              bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  check_before_composite(
      packed(Cell::kLstm, data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional));
  return composite::lstm(data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional);
}

constexpr PaddedComposite kGruPadded = checked_padded<Cell::kGru, composite::gru>,
                          kRnnTanhPadded = checked_padded<Cell::kRnnTanh, composite::rnn_tanh>,
                          kRnnReluPadded = checked_padded<Cell::kRnnRelu, composite::rnn_relu>;
constexpr PackedComposite kGruPacked = checked_packed<Cell::kGru, composite::gru>,
                          kRnnTanhPacked = checked_packed<Cell::kRnnTanh, composite::rnn_tanh>,
                          kRnnReluPacked = checked_packed<Cell::kRnnRelu, composite::rnn_relu>;
constexpr LstmPadded kLstmPadded = checked_lstm;
constexpr LstmPacked kLstmPacked = checked_lstm_packed;

template <Cell cell, auto fallback>
OneState one_state(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases, int64_t layers,
                   double dropout, bool train, bool bidirectional, bool batch_first) {
  auto out = try_run(padded(cell, input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first));
  if (!out.empty()) return {std::move(out[0]), std::move(out[1])};
  return fallback(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
}

template <Cell cell, auto fallback>
OneState one_state_packed(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params,
                          bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  auto out = try_run(packed(cell, data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional));
  if (!out.empty()) return {std::move(out[0]), std::move(out[1])};
  return fallback(data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional);
}

TwoStates lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t layers, double dropout,
               bool train, bool bidirectional, bool batch_first) {
  auto out =
      try_run(padded(Cell::kLstm, input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first));
  if (!out.empty()) return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
  return checked_lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
}

TwoStates lstm_packed(const Tensor& data, const Tensor& batch_sizes, TensorList hx, TensorList params, bool has_biases,
                      int64_t layers, double dropout, bool train, bool bidirectional) {
  auto out =
      try_run(packed(Cell::kLstm, data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional));
  if (!out.empty()) return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
  return checked_lstm_packed(data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional);
}

void register_padded(torch::Library& m) {
  m.impl("gru.input", TORCH_FN((one_state<Cell::kGru, kGruPadded>)));
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("rnn_tanh.input", TORCH_FN((one_state<Cell::kRnnTanh, kRnnTanhPadded>)));
  m.impl("rnn_relu.input", TORCH_FN((one_state<Cell::kRnnRelu, kRnnReluPadded>)));
}

void register_packed(torch::Library& m) {
  m.impl("gru.data", TORCH_FN((one_state_packed<Cell::kGru, kGruPacked>)));
  m.impl("lstm.data", TORCH_FN(lstm_packed));
  m.impl("rnn_tanh.data", TORCH_FN((one_state_packed<Cell::kRnnTanh, kRnnTanhPacked>)));
  m.impl("rnn_relu.data", TORCH_FN((one_state_packed<Cell::kRnnRelu, kRnnReluPacked>)));
}

/// A kernel for the keys of Weft's device, which tensors of a recording have too. While a recording has switched such a
/// key on, calls with other tensors come here as well, and the composite is decomposed for these. It is also decomposed
/// for packed rows of a recording: in a program their numbers of rows are only symbols.
template <auto kernel, auto composite_kernel, typename Function = decltype(composite_kernel)>
struct OnDevice;
template <auto kernel, auto composite_kernel, typename Result, typename... Arguments>
struct OnDevice<kernel, composite_kernel, Result (*)(const Tensor&, Arguments...)> {
  static Result call(const Tensor& input, Arguments... arguments) {
    return input.is_privateuseone() ? kernel(input, arguments...) : composite_kernel(input, arguments...);
  }
  static Result call_or_record(const Tensor& input, Arguments... arguments) {
    const bool is_recorded = record::as_recording(input) != nullptr;
    return is_recorded ? kernel(input, arguments...) : call(input, arguments...);
  }
};

/// The outputs, or none if the composite would run. Called by python/weft/_patches/rnn_decompositions.py while tracing.
Tensors try_rnn(std::string_view cell, const Tensor& input, TensorList states, TensorList params, bool has_biases,
                int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  for (Cell known : {Cell::kGru, Cell::kLstm, Cell::kRnnTanh, Cell::kRnnRelu}) {
    if (name_of(known) != cell) continue;
    return try_run(
        padded(known, input, states, params, has_biases, layers, dropout, train, bidirectional, batch_first));
  }
  user_error("weft::_try_rnn: no cell named '{}'", cell);
}

}  // namespace

void register_on_device(torch::Library& m) {
  m.impl("gru.input", TORCH_FN((OnDevice<one_state<Cell::kGru, kGruPadded>, kGruPadded>::call_or_record)));
  m.impl("lstm.input", TORCH_FN((OnDevice<lstm, kLstmPadded>::call_or_record)));
  m.impl("rnn_tanh.input",
         TORCH_FN((OnDevice<one_state<Cell::kRnnTanh, kRnnTanhPadded>, kRnnTanhPadded>::call_or_record)));
  m.impl("rnn_relu.input",
         TORCH_FN((OnDevice<one_state<Cell::kRnnRelu, kRnnReluPadded>, kRnnReluPadded>::call_or_record)));
  m.impl("gru.data", TORCH_FN((OnDevice<one_state_packed<Cell::kGru, kGruPacked>, kGruPacked>::call)));
  m.impl("lstm.data", TORCH_FN((OnDevice<lstm_packed, kLstmPacked>::call)));
  m.impl("rnn_tanh.data", TORCH_FN((OnDevice<one_state_packed<Cell::kRnnTanh, kRnnTanhPacked>, kRnnTanhPacked>::call)));
  m.impl("rnn_relu.data", TORCH_FN((OnDevice<one_state_packed<Cell::kRnnRelu, kRnnReluPacked>, kRnnReluPacked>::call)));
}

}  // namespace weft::override_kernels

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "_try_rnn(str cell, Tensor input, Tensor[] states, Tensor[] params, bool has_biases, int num_layers, "
      "float dropout, bool train, bool bidirectional, bool batch_first) -> Tensor[]",
      weft::override_kernels::try_rnn);
}
TORCH_LIBRARY_IMPL(aten, CPU, m) {
  weft::override_kernels::register_padded(m);
  weft::override_kernels::register_packed(m);
}
TORCH_LIBRARY_IMPL(aten, AutogradCPU, m) {
  weft::override_kernels::register_padded(m);
  weft::override_kernels::register_packed(m);
}
// For torch.vmap of a module: weft::call has a batching rule, while PyTorch's composite fails if h0 is not mapped.
TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) { weft::override_kernels::register_padded(m); }
