#include "override/rnn_call.h"

#include <torch/csrc/python_headers.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "operator/autocast_state.h"
#include "operator/signature.h"
#include "override/state.h"

namespace weft::override_kernels {
namespace {

using at::Tensor;
using at::TensorList;
using Form = RnnConfig::Form;

/// Whether the class of a tensor handles operators itself. PyTorch's tracing classes don't count, since they pass every
/// operator on.
bool of_unknown_subclass(const Tensor& tensor) {
  if (!tensor.key_set().has(c10::DispatchKey::Python)) return false;
  PyObject* object = tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  if (!object) return true;
  std::string_view name = Py_TYPE(object)->tp_name;
  return name != "FakeTensor" && name != "FunctionalTensor";
}

/// Compares plain sizes directly: PyTorch's functions for symbolic sizes take longer, and a call compares some twenty.
bool equal(const c10::SymInt& a, const c10::SymInt& b) {
  if (!a.is_heap_allocated() && !b.is_heap_allocated()) return a.as_int_unchecked() == b.as_int_unchecked();
  return a.sym_eq(b).guard_bool(__FILE__, __LINE__);
}

int64_t number(const c10::SymInt& size) {
  return size.is_heap_allocated() ? size.guard_int(__FILE__, __LINE__) : size.as_int_unchecked();
}

/// Whether the size is known to be zero.
bool is_zero(const c10::SymInt& size) {
  return size.is_heap_allocated() ? TORCH_GUARD_OR_FALSE(size.sym_eq(0)) : size.as_int_unchecked() == 0;
}

bool is_on_engine(const Tensor& tensor) { return tensor.is_cpu() || (tensor.is_privateuseone() && has_device()); }

/// A size that a tensor should have.
class WantedSize {
 public:
  WantedSize(int64_t number) : number_(number) {}
  WantedSize(const c10::SymInt& size) : symbolic_(&size) {}

  bool operator()(const c10::SymInt& size) const {
    if (symbolic_) return equal(size, *symbolic_);
    return size.is_heap_allocated() ? equal(size, number_) : size.as_int_unchecked() == number_;
  }

 private:
  int64_t number_ = 0;
  const c10::SymInt* symbolic_ = nullptr;
};

/// Whether the tensor is dense, on the CPU or on Weft's device, of this dtype and these sizes.
bool fits(const Tensor& tensor, DType dtype, std::initializer_list<WantedSize> sizes) {
  if (!tensor.defined() || !is_on_engine(tensor) || torch_operator::dtype_of(tensor.scalar_type()) != dtype ||
      tensor.layout() != at::kStrided)
    return false;
  auto own = tensor.sym_sizes();
  return own.size() == sizes.size() &&
         std::equal(own.begin(), own.end(), sizes.begin(),
                    [](const auto& size, const WantedSize& is_it) { return is_it(size); });
}

/// PyTorch's capabilities of this processor; asked for at the first use, perhaps by several threads at once.
class Answer {
 public:
  explicit constexpr Answer(const char* op) : op_(op) {}

  bool operator()() {
    int known = known_.load(std::memory_order_relaxed);
    if (known < 0) {
      known = c10::Dispatcher::singleton().findSchemaOrThrow(op_, "").typed<bool()>().call() ? 1 : 0;
      known_.store(known, std::memory_order_relaxed);
    }
    return known == 1;
  }

 private:
  const char* op_;
  std::atomic<int> known_{-1};
};

constinit Answer has_bf16("mkldnn::_is_mkldnn_bf16_supported"), has_f16("mkldnn::_is_mkldnn_fp16_supported");

/// Whether oneDNN computes in that type on this processor; the question is PyTorch's own.
bool has_primitives(at::ScalarType type) {
  return type == at::kFloat || (type == at::kBFloat16 && has_bf16()) || (type == at::kHalf && has_f16());
}

/// PyTorch runs an unprojected LSTM on padded input, or on sequences of one length, as one oneDNN primitive. Under
/// autocast that has one type for all operands.
bool is_one_primitive(const RnnCall& call, const RnnConfig& config) {
  if (config.cell != Cell::kLstm || config.proj_size > 0) return false;
  if (config.form == Form::kStep || (config.form == Form::kPacked && !is_uniform(call))) return false;
  if (!has_primitives(call.input.scalar_type())) return false;
  auto elements = call.input.sym_numel().maybe_as_int();
  return at::globalContext().userEnabledMkldnn() && elements != 0;
}

using DTypes = RnnConfig::DTypes;

/// Sets the types under autocast, as in PyTorch's composites: products are of type `low`, and states keep theirs.
void apply_autocast(DTypes& types, DType low, const RnnCall& call, const RnnConfig& config) {
  auto with_low = [&](DType state) { return state == low ? low : DType::kF32; };
  types.rounding = low;
  switch (call.cell) {
    case Cell::kGru:
      types.y = types.last_h = with_low(types.h);
      break;
    case Cell::kRnnTanh:
    case Cell::kRnnRelu:
      types.y = types.last_h = low;
      break;
    case Cell::kLstm:
      types.last_c = is_one_primitive(call, config) ? low : with_low(types.c);
      types.y = types.last_h = config.proj_size > 0 ? low : types.last_c;
      break;
  }
}

std::optional<DTypes> dtypes_of(const RnnCall& call, const RnnConfig& config) {
  auto of = [](const Tensor& tensor) {
    auto dtype = torch_operator::dtype_of(tensor.scalar_type());
    return dtype && is_floating(*dtype) ? dtype : std::nullopt;
  };
  auto x = of(call.input), h = of(call.states[0]), c = of(call.states.back()), weights = of(call.params[0]);
  if (!x || !h || !c || !weights) return std::nullopt;
  DTypes types{*x, *h, *c, *weights, *x, *x, *x, std::nullopt};
  const std::array given{*x, *h, *c, *weights};
  const bool none_double = std::ranges::find(given, DType::kF64) == given.end();  // autocast leaves f64 alone
  const auto device = call.input.is_privateuseone() ? at::kPrivateUse1 : at::kCPU;
  if (at::autocast::is_autocast_enabled(device) && none_double) {
    auto low = torch_operator::dtype_of(at::autocast::get_autocast_dtype(device));
    if (!low || (*low != DType::kBF16 && *low != DType::kF16)) return std::nullopt;
    apply_autocast(types, *low, call, config);
    return types;
  }
  if (*h != *x || *c != *x || *weights != *x) return std::nullopt;
  return types;
}

/// Reads the sizes from the first layer's weights and the states. False if no module has such sizes.
bool read_sizes(const RnnCall& call, RnnConfig& config) {
  const Tensor &w_ih = call.params[0], &w_hh = call.params[1];
  if (w_ih.dim() != 2 || w_hh.dim() != 2) return false;
  int64_t rows = number(w_hh.sym_size(0));
  if (rows < 1 || rows % gates_of(call.cell) != 0) return false;
  config.input_size = number(w_ih.sym_size(1));
  config.hidden_size = rows / gates_of(call.cell);
  int64_t output_size = number(w_hh.sym_size(1));
  if (call.cell == Cell::kLstm && !equal(call.states[0].sym_size(-1), call.states[1].sym_size(-1)))
    config.proj_size = output_size;
  return config.output_size() == output_size && output_size > 0;
}

bool input_fits(const RnnCall& call, const RnnConfig& config, const c10::SymInt& batch) {
  const Tensor& x = call.input;
  switch (config.form) {
    case Form::kPadded: {
      if (x.dim() != 3 || is_zero(x.sym_size(call.batch_first ? 1 : 0))) return false;
      if (!equal(x.sym_size(call.batch_first ? 0 : 1), batch)) return false;
      return fits(x, config.dtypes.x, {x.sym_size(0), x.sym_size(1), config.input_size});
    }
    case Form::kPacked: {
      const Tensor& sizes = *call.batch_sizes;
      if (x.dim() != 2 || sizes.dim() != 1 || is_zero(sizes.sym_size(0))) return false;
      return fits(sizes, DType::kI64, {sizes.sym_size(0)}) &&
             fits(x, config.dtypes.x, {x.sym_size(0), config.input_size});
    }
    case Form::kStep:
      return fits(x, config.dtypes.x, {batch, config.input_size});
  }
  return false;
}

bool states_fit(const RnnCall& call, const RnnConfig& config, const c10::SymInt& batch) {
  for (size_t i = 0; i < call.states.size(); ++i) {
    DType dtype = i == 0 ? config.dtypes.h : config.dtypes.c;
    int64_t size = i == 0 ? config.output_size() : config.hidden_size;
    bool good = config.form == Form::kStep
                    ? fits(call.states[i], dtype, {batch, size})
                    : fits(call.states[i], dtype, {config.layers * config.directions(), batch, size});
    if (!good) return false;
  }
  return true;
}

bool params_fit(const RnnCall& call, const RnnConfig& config) {
  int64_t rows = gates_of(config.cell) * config.hidden_size;
  DType dtype = config.dtypes.weights;
  size_t next = 0;
  auto next_fits = [&](std::initializer_list<WantedSize> sizes) { return fits(call.params[next++], dtype, sizes); };
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (int64_t direction = 0; direction < config.directions(); ++direction) {
      if (!next_fits({rows, config.layer_input_size(layer)}) || !next_fits({rows, config.output_size()})) return false;
      if (config.biases && (!next_fits({rows}) || !next_fits({rows}))) return false;
      if (config.proj_size > 0 && !next_fits({config.proj_size, config.hidden_size})) return false;
    }
  }
  return true;
}

}  // namespace

std::string unsupported(const RnnCall& call) {
  std::string reason;
  auto look_at = [&](const Tensor& tensor) {
    if (!tensor.defined()) return;
    if (of_unknown_subclass(tensor)) reason = "a tensor subclass";
    if (tensor._fw_grad(0).defined()) reason = "forward-mode differentiation";
  };
  look_at(call.input);
  std::ranges::for_each(call.states, look_at);
  std::ranges::for_each(call.params, look_at);
  return reason;
}

std::optional<RnnConfig> configuration(const RnnCall& call) {
  RnnConfig config;
  config.cell = call.cell;
  config.form = call.form;
  config.biases = call.has_biases;
  config.bidirectional = call.bidirectional;
  config.layers = call.layers;
  if (call.states.size() != carries_of(call.cell) || call.layers < 1 || call.params.size() < 2) return std::nullopt;
  const int64_t dims = call.form == Form::kStep ? 2 : 3;
  auto has_dims = [&](const Tensor& state) { return state.defined() && state.dim() == dims; };
  if (!std::ranges::all_of(call.states, has_dims) || !read_sizes(call, config)) return std::nullopt;
  int64_t wanted = config.params_per_direction() * config.layers * config.directions();
  if (static_cast<int64_t>(call.params.size()) != wanted) return std::nullopt;
  auto dtypes = dtypes_of(call, config);
  if (!dtypes) return std::nullopt;
  config.dtypes = *dtypes;
  c10::SymInt batch = call.states[0].sym_size(dims - 2);
  if (!input_fits(call, config, batch) || !states_fit(call, config, batch) || !params_fit(call, config))
    return std::nullopt;
  return config;
}

bool may_be_traced(const Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                           c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched});
  return tensor.key_set().has_any(kWrappers);
}

const int64_t* known_batch_sizes(const RnnCall& call) {
  const Tensor& sizes = *call.batch_sizes;
  if (may_be_traced(sizes) || !sizes.is_cpu() || !sizes.has_storage() || !sizes.is_contiguous()) return nullptr;
  return static_cast<const int64_t*>(sizes.const_data_ptr());
}

bool is_uniform(const RnnCall& call) {
  const int64_t* sizes = known_batch_sizes(call);
  if (!sizes) return false;
  const int64_t steps = call.batch_sizes->size(0), batch = call.states[0].size(-2);
  return std::all_of(sizes, sizes + steps, [&](int64_t size) { return size == batch; }) &&
         call.input.size(0) == steps * batch;
}

}  // namespace weft::override_kernels
