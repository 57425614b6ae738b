#include <algorithm>
#include <bit>

#include "record/argument_words.h"
#include "record/recording_internal.h"

namespace weft::record {

namespace {

/// About as many words as most keys have.
constexpr size_t kUsualKey = 32;

/// The shape of x[i] is known if i are integers. If i is a mask, its values must be known.
bool has_known_shape(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  if (op.schema().name() != "aten::index") return false;
  for (const c10::IValue& index : arguments[1].toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) continue;
    auto dtype = index.toTensor().scalar_type();
    if (dtype == at::kBool || dtype == at::kByte) return false;
  }
  return true;
}

}  // namespace

/// Writes arguments into the record, and into the key of the results' types.
class Recording::ArgumentWriter {
 public:
  ArgumentWriter(Recording& recording, Call& call)
      : recording_(recording), call_(call), key_(call.words, call.traits.name, call.traits.takes_tensors) {}

  void fixed(int64_t word) { both(&Record::fixed, &ShapeKey::fixed, word); }
  void size(int64_t size) { both(&Record::size, &ShapeKey::size, size); }
  void wrapped_size(int64_t number) { both(&Record::size, &ShapeKey::wrapped_size, number); }
  void number(double number) { both(&Record::number, &ShapeKey::number, number); }
  void sizes(at::IntArrayRef sizes) {
    recording_.record_.sizes(sizes);
    key_.sizes(sizes);
  }
  void text(std::string_view text) { both(&Record::text, &ShapeKey::text, text); }
  void tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return fixed(kUndefined);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && recording_.own(tensor) == nullptr) {
      if (tensor.scalar_type() == at::kComplexDouble)
        return complex(kWrapped, *tensor.const_data_ptr<c10::complex<double>>());
      return spell_number(tensor, *this);
    }
    key_.tensor(tensor);
    recording_.write_tensor(tensor);
  }
  void other(const c10::IValue& argument) {
    if (argument.isComplexDouble()) return complex(kComplex, argument.toComplexDouble());
    throw UnsupportedError(call_.op.schema().name() + " with a " + argument.tagKind());
  }

 private:
  void complex(Tag tag, c10::complex<double> number) {
    fixed(tag);
    fixed(static_cast<int64_t>(at::kComplexDouble));
    fixed(std::bit_cast<int64_t>(number.real()));
    fixed(std::bit_cast<int64_t>(number.imag()));
  }
  template <typename Word>
  void both(void (Record::*in_record)(Word), void (ShapeKey::*in_key)(Word), Word word) {
    (recording_.record_.*in_record)(word);
    (key_.*in_key)(word);
  }

  Recording& recording_;
  const Call& call_;
  ShapeKey key_;
};

void Recording::call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  try {
    if (interceptor_ == nullptr || !interceptor_->intercept(op, stack)) record(op, stack);
  } catch (const ReadsValueError& error) {
    failure_ = {Failure::kReadsValue, error.what(), {}};
    throw;
  } catch (const MutationError& error) {
    failure_ = {Failure::kMutates, error.what(), error.tensor};
    throw;
  } catch (const UnsupportedError& error) {
    failure_ = {Failure::kUnsupported, error.what(), {}};
    throw;
  } catch (const UnrecordableError& error) {
    failure_ = {Failure::kUnrecordable, error.what(), {}};
    throw;
  }
}

void Recording::record(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const Traits& traits = traits_of(op);
  const size_t count = op.schema().arguments().size();
  if (traits.reads_values && !has_known_shape(op, torch::jit::last(stack, count))) return run_now(op, stack);
  if (operations_.size() == looked_at_ && look_) std::exchange(look_, {})();
  if (traits.is_lift && own(stack.back().toTensor()) == nullptr) return;
  // torch.tensor fills the memory without operations.
  if (op.schema().name() == "aten::empty" && c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python)) {
    NotRecorded guard;
    return op.callBoxed(&stack);
  }
  Call call{op, traits, torch::jit::last(stack, count), {}, {}};
  call.words.reserve(kUsualKey);
  refuse_mutation(call);
  const bool grad_mode = interceptor_ == nullptr ? at::GradMode::is_enabled() : interceptor_->has_gradients();
  Operation operation{op, arguments_.size(), record_.words().size(), 0, grad_mode, {}, uses_.size()};
  record_.fixed(traits.name << 1 | static_cast<int64_t>(operation.grad_mode));
  ArgumentWriter writer(*this, call);
  for (const c10::IValue& argument : call.arguments) spell(argument, writer);
  for (const c10::IValue& argument : call.arguments) {
    arguments_.push_back(interceptor_ == nullptr ? argument : as_it_is(argument));
  }
  for (const auto& [base, copy] : copies_)
    if (stale_.contains(base) || std::ranges::find(call.written, base) != call.written.end()) stale_.insert(copy);
  operation.end_word = record_.words().size();
  push_results(call, stack);
  operation.results = std::move(call.results);
  makers_.resize(static_cast<size_t>(values_), kNoMaker);
  for (int64_t result : operation.results) {
    if (result >= 0 && makers_[static_cast<size_t>(result)] == kNoMaker)
      makers_[static_cast<size_t>(result)] = operations_.size();
  }
  operations_.push_back(std::move(operation));
}

void Recording::refuse_mutation(Call& call) {
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (!call.traits.writes[i] || call.arguments[i].isNone()) continue;
    std::vector<at::Tensor> changed;
    if (call.arguments[i].isTensor()) changed.push_back(call.arguments[i].toTensor());
    if (call.arguments[i].isTensorList()) changed = call.arguments[i].toTensorVector();
    for (const at::Tensor& tensor : changed) {
      if (!tensor.defined()) continue;
      auto* value = own(tensor);
      if (value != nullptr && value->storage >= 0) {
        // The change affects the value but not its derivative. No out-of-place operation does that.
        bool is_seen = at::GradMode::is_enabled() && tensor.requires_grad();
        if ((!is_seen && requires_gradient(value->storage)) || (value->is_data && may_be_saved(value->storage)))
          throw UnsupportedError("a change in place that autograd doesn't see");
        if (std::ranges::find(copies_, value->storage, &std::pair<int64_t, int64_t>::second) != copies_.end())
          throw UnsupportedError("a change in place of a view whose place depends on values");
        changed_[value->storage] = operations_.size();
        call.written.push_back(value->storage);
        continue;
      }
      std::string name = call.op.schema().name();
      throw MutationError(name.substr(name.find("::") + 2),
                          value != nullptr ? outside_[static_cast<size_t>(-1 - value->storage)] : original(tensor));
    }
  }
}

/// Whether a live tensor that shares this memory requires a gradient.
bool Recording::requires_gradient(int64_t storage) const {
  return std::ranges::any_of(made_, [&](const auto& made) {
    auto tensor = made.lock();
    return tensor.defined() && static_cast<RecordingTensor*>(tensor.get())->storage == storage &&
           tensor->requires_grad();
  });
}

/// Whether autograd may have saved a tensor in this memory for a derivative.
bool Recording::may_be_saved(int64_t storage) const {
  return std::ranges::any_of(operations_, [&](const Operation& operation) {
    if (!operation.grad_mode) return false;
    const size_t count = operation.op ? operation.op->schema().arguments().size() : 2;
    for (size_t i = 0; i < count; ++i) {
      const c10::IValue& argument = arguments_[operation.arguments + i];
      std::vector<at::Tensor> read;
      if (argument.isTensor()) read.push_back(argument.toTensor());
      if (argument.isTensorList()) read = argument.toTensorVector();
      for (const at::Tensor& tensor : read)
        if (auto* value = tensor.defined() ? own(tensor) : nullptr; value != nullptr && value->storage == storage)
          return true;
    }
    return false;
  });
}

bool Recording::is_changed_from(size_t operation, int64_t value) const {
  const auto last = changed_.find(storage(value));
  return last != changed_.end() && last->second >= operation;
}

void Recording::show_as_view(const at::Tensor& base, const at::Tensor& copy) {
  auto *from = own(base), *to = own(copy);
  // A tensor from outside is never changed, so its copy never gets stale.
  if (to != nullptr) copies_.emplace_back(from != nullptr ? from->storage : -1, to->storage);
}

void Recording::refuse_stale(const RecordingTensor& value) const {
  if (stale_.contains(value.storage))
    throw UnsupportedError("a view whose place depends on values, read after a change of what it shows");
}

/// Writes, for a tensor that an operation reads, where its gradient goes. A tensor from outside is known by its index.
void Recording::write_use(const at::Tensor& tensor, RecordingTensor* value) {
  if (value != nullptr)
    uses_.push_back(graph_.use(tensor, *value));
  else
    uses_.push_back({tensor.requires_grad() ? GradientUse::kOutside : GradientUse::kNone, 0});
  record_.fixed(uses_.back().word());
}

void Recording::write_tensor(const at::Tensor& tensor) {
  auto* value = own(tensor);
  if (value != nullptr) refuse_stale(*value);
  record_.fixed(value != nullptr ? kOwn : kOutside);
  if (at::GradMode::is_enabled()) write_use(tensor, value);
  if (value != nullptr) {
    record_.fixed(value->id);
    return;
  }
  if (auto* other = as_recording(original(tensor))) {
    Recording* outer = before_;
    while (outer != nullptr && outer->serial_ != other->recording) outer = outer->before_;
    if (outer == nullptr) throw UnsupportedError("a tensor that an earlier run of a step kept; it never had a value");
  }
  record_.fixed(outside_index(tensor));
}

std::shared_ptr<const ResultShapes> Recording::shapes_of(const Call& call) {
  auto shapes = known_shapes(call.words);
  if (shapes == nullptr) {
    NotRecorded guard;
    shapes = find_shapes(call.op, call.arguments, call.words);
  }
  return shapes;
}

void Recording::push_results(Call& call, torch::jit::Stack& stack) {
  auto shapes = shapes_of(call);
  for (const auto& [index, shape] : shapes->resized) {
    if (auto* value = own(call.arguments[index].toTensor())) value->resize(shape.sizes, shape.strides);
  }
  torch::jit::Stack results;
  results.reserve(shapes->results.size());
  call.results.reserve(shapes->results.size());
  for (size_t i = 0; i < shapes->results.size(); ++i) {
    const Traits::Return& traits = call.traits.returns.at(i);
    if (traits.is_argument && traits.argument >= 0) {
      const c10::IValue& argument = call.arguments[static_cast<size_t>(traits.argument)];
      if (argument.isTensor()) call.results.push_back(id(argument.toTensor()).value_or(-1));
      results.push_back(argument);
      continue;
    }
    std::optional<int64_t> shared;  // the storage of the tensor that the result is a view of
    std::optional<c10::InferenceMode> as_base;
    if (traits.argument >= 0 && call.arguments[static_cast<size_t>(traits.argument)].isTensor()) {
      const at::Tensor& base = call.arguments[static_cast<size_t>(traits.argument)].toTensor();
      auto* value = own(base);
      shared = value != nullptr ? value->storage : -1 - outside_index(base);
    }
    // In inference mode a view of a tensor from outside has a version counter, as tensors made outside of inference
    // mode have.
    if (const int viewed = std::max(traits.argument, traits.elements_of);
        viewed >= 0 && call.arguments[static_cast<size_t>(viewed)].isTensor())
      as_base.emplace(call.arguments[static_cast<size_t>(viewed)].toTensor().is_inference());
    if (!shapes->is_list[i]) {
      results.emplace_back(push_result(call, shapes->results[i][0], shared.value_or(values_)));
      continue;
    }
    std::vector<at::Tensor> tensors;
    for (const ResultShape& shape : shapes->results[i])
      tensors.push_back(push_result(call, shape, shared.value_or(values_)));
    results.emplace_back(std::move(tensors));
  }
  torch::jit::drop(stack, call.arguments.size());
  stack.insert(stack.end(), results.begin(), results.end());
}

at::Tensor Recording::push_result(Call& call, const ResultShape& shape, int64_t storage) {
  if (!shape.is_defined) {
    call.results.push_back(-1);
    record_.fixed(kUndefined);
    return {};
  }
  record_.fixed(static_cast<int64_t>(shape.dtype));
  record_.sizes({shape.sizes.data(), shape.sizes.size()});
  call.results.push_back(values_);
  return make(shape.dtype, shape.sizes, shape.strides, storage);
}

std::vector<at::Tensor> Recording::derived(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values,
                                           const Record& part, size_t payload, DerivedNode::Backward backward) {
  Operation operation{std::nullopt, arguments_.size(), record_.words().size(), 0, true, {}, uses_.size(), payload};
  record_.fixed(kDerived);
  for (const auto* list : {&inputs, &values}) {
    record_.fixed(static_cast<int64_t>(list->size()));
    for (const at::Tensor& tensor : *list) {
      auto number = id(tensor);
      if (!number) throw UnsupportedError("a torch.autograd.Function of a number");
      record_.fixed(*number);
      if (list == &inputs) write_use(tensor, own(tensor));
    }
    arguments_.push_back(interceptor_ == nullptr ? c10::IValue(*list) : as_it_is(*list));
  }
  record_.append(part);
  operation.end_word = record_.words().size();
  std::vector<at::Tensor> results;
  for (const at::Tensor& value : values) {
    operation.results.push_back(values_);
    results.push_back(make(value.scalar_type(), value.sizes(), dense_strides(value.sizes()), values_));
  }
  operations_.push_back(std::move(operation));
  set_history(results, inputs, std::move(backward));
  return results;
}

std::vector<at::Tensor> Recording::derived(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values,
                                           std::string vjp) {
  auto results = derived(inputs, values, Record(), 0, {});
  operations_.back().vjp = std::move(vjp);
  return results;
}

bool Recording::shares_memory(const at::Tensor& tensor) const {
  auto* value = own(tensor);
  auto found = value != nullptr ? sharers_.find(value->storage) : sharers_.end();
  return found == sharers_.end() || found->second > 1;
}

/// The argument with copies of its tensors, which keep their values if the tensors are rebound.
c10::IValue Recording::as_it_is(const c10::IValue& argument) const {
  if (argument.isTensor()) {
    auto* value = own(argument.toTensor());
    if (value == nullptr) return argument;
    return at::detail::make_tensor<RecordingTensor>(argument.toTensor().scalar_type(), value->sizes(), value->strides(),
                                                    serial_, value->id, value->storage);
  }
  if (argument.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : argument.toTensorVector()) tensors.push_back(as_it_is(tensor).toTensor());
    return tensors;
  }
  if (argument.isList() && !argument.isIntList() && !argument.isDoubleList() && !argument.isBoolList()) {
    auto list = argument.toList();
    c10::impl::GenericList copy(list.elementType());
    for (const c10::IValue& item : list) copy.push_back(as_it_is(item));
    return copy;
  }
  return argument;
}

void Recording::rebind(const at::Tensor& tensor, const at::Tensor& result) {
  auto* value = own(tensor);
  auto* next = own(result);
  TORCH_CHECK(value != nullptr && next != nullptr, "weft internal error: a change of a tensor from outside");
  value->id = next->id;
  value->resize(result.sizes(), result.strides());
}

}  // namespace weft::record
