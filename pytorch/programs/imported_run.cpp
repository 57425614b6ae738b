#include "programs/imported_run.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "decompose/decompose.h"
#include "importer/aten_ops.h"
#include "importer/complex.h"
#include "passes/differentiation/own_derivatives.h"
#include "programs/draws.h"
#include "programs/extern_text.h"
#include "programs/free_numbers.h"
#include "programs/stop_gradient.h"
#include "record/aside.h"
#include "record/traits.h"

namespace weft::programs {

using c10::IValue;
using c10::OperatorHandle;
using record::Operation;
using record::Record;
using record::Recording;
using torch::jit::Stack;

namespace functionalization = at::functionalization::impl;

std::string printed_name(const c10::OperatorName& name) {
  std::string printed = name.name;
  if (size_t colons = printed.find("::"); colons != std::string::npos) printed.replace(colons, 2, ".");
  return printed + "." + (name.overload_name.empty() ? "default" : name.overload_name);
}

namespace {

/// Finds for each argument of an operation the index of the free number that the argument is. Must be called for the
/// arguments in order.
class FreeNumbers {
 public:
  FreeNumbers(const Record& record, const Operation& operation, const std::vector<size_t>& free)
      : record_(record), word_(operation.first_word), end_(operation.end_word), free_(free) {}

  std::optional<size_t> operator()(const IValue& argument) {
    if (argument.isDouble()) return next();
    if (argument.isTensor()) {
      const at::Tensor& tensor = argument.toTensor();
      bool is_number = tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number();
      return is_number && tensor.scalar_type() == at::kDouble ? next() : std::nullopt;
    }
    if (!argument.isList()) return std::nullopt;
    for (const IValue& item : argument.toListRef()) {
      if ((*this)(item)) throw record::UnsupportedError("a list of numbers that differ from call to call");
    }
    return std::nullopt;
  }

 private:
  std::optional<size_t> next() {
    while (word_ < end_ && record_.kinds()[word_] != Record::Kind::kNumber) ++word_;
    auto found = std::find(free_.begin(), free_.end(), word_++);
    if (found == free_.end()) return std::nullopt;
    return static_cast<size_t>(found - free_.begin());
  }

  const Record& record_;
  size_t word_, end_;
  const std::vector<size_t>& free_;
};

/// The tensor, copied to these strides unless it has them. They are strides of a dense tensor whose dims are permuted.
at::Tensor with_strides(const at::Tensor& tensor, at::IntArrayRef strides) {
  std::vector<int64_t> order;  // of the dims, the outermost in memory first
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) order.push_back(dim);
  std::ranges::stable_sort(order, std::greater{}, [&](int64_t dim) { return strides[static_cast<size_t>(dim)]; });
  const auto matters = [&](int64_t dim) { return tensor.size(dim) != 1; };
  if (tensor.numel() == 0 || std::ranges::all_of(order, [&](int64_t dim) {
        return !matters(dim) || tensor.stride(dim) == strides[static_cast<size_t>(dim)];
      }))
    return tensor;
  std::vector<int64_t> back(order.size());
  for (size_t place = 0; place < order.size(); ++place)
    back[static_cast<size_t>(order[place])] = static_cast<int64_t>(place);
  return tensor.permute(order).contiguous().permute(back);
}

/// Whether a tensor among the arguments is complex.
bool is_complex(at::ArrayRef<IValue> arguments) {
  return std::ranges::any_of(arguments, [](const IValue& argument) {
    if (argument.isTensor()) return argument.toTensor().defined() && argument.toTensor().is_complex();
    if (argument.isComplexDouble()) return true;
    return argument.isTensorList() && std::ranges::any_of(argument.toTensorVector(), [](const at::Tensor& each) {
             return each.defined() && each.is_complex();
           });
  });
}

/// The tensors with a gradient that the operation is about to change, and where their gradients go. Autograd knows no
/// derivative of some operations in place (`logical_not_`): there a gradient goes on as if nothing had changed.
std::vector<std::pair<at::Tensor, torch::autograd::Edge>> changed_by(const OperatorHandle& op, const Stack& arguments) {
  std::vector<std::pair<at::Tensor, torch::autograd::Edge>> changed;
  if (!op.schema().is_mutable() || !at::GradMode::is_enabled()) return changed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite() || !arguments[i].isTensor()) continue;
    if (!arguments[i].toTensor().defined()) continue;
    // A view has a new node after each change of its base, whatever the change was.
    const at::Tensor& given = arguments[i].toTensor();
    const at::Tensor tensor(given.is_view() ? given._base() : static_cast<const at::TensorBase&>(given));
    if (tensor.requires_grad()) changed.emplace_back(tensor, torch::autograd::impl::gradient_edge(tensor));
  }
  return changed;
}

}  // namespace

std::vector<at::Tensor> tensors_of(const Stack& stack) {
  std::vector<at::Tensor> tensors;
  for (const IValue& result : stack) {
    if (result.isTensorList()) {
      for (const at::Tensor& each : result.toTensorVector()) tensors.push_back(each);
    } else {
      tensors.push_back(result.isTensor() ? result.toTensor() : at::Tensor());
    }
  }
  return tensors;
}

ImportedRun::ImportedRun(Recording& source, std::vector<size_t> free, const Way& way, Callbacks callbacks)
    : source_(source),
      free_(std::move(free)),
      functional_(way.functional),
      whole_(way.whole),
      callbacks_(std::move(callbacks)),
      match_(source, flat_, free_.empty()) {
  flat_.set_interceptor(this);
  add_inputs();
  try {
    functionalization::FunctionalizationReapplyViewsGuard views_stay_views(true);
    flat_.enter();
    replay();
    flat_.leave();
  } catch (...) {
    flat_.leave();
    rethrow(std::current_exception());
  }
  flat_.set_interceptor(nullptr);
}

/// Restores from the recording the part of an error that was lost on its way through PyTorch.
void ImportedRun::rethrow(std::exception_ptr error) {
  if (needs_functional_) throw NeedsFunctionalError("a change of a view in place");
  if (const auto& failure = flat_.failure()) {
    bool reads = failure->kind == Recording::Failure::kReadsValue;
    throw record::UnsupportedError(reads ? "an operation that looks at values" : failure->reason, operation_);
  }
  std::rethrow_exception(std::move(error));
}

void ImportedRun::add_inputs() {
  for (const auto& [dtype, sizes] : source_.input_types()) {
    at::Tensor tensor = flat_.input(dtype, sizes, record::has_gradients(dtype));
    if (tensor.requires_grad()) requires_gradient_.insert(*flat_.id(tensor));
    varied_.insert(source_.storage(static_cast<int64_t>(values_.size())));
    values_.push_back(wrapped(tensor));
  }
  inputs_ = flat_.inputs();
  auto sizes = source_.outside_sizes();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const at::Tensor& outside = source_.outside()[i];
    at::Tensor tensor = flat_.input(outside.scalar_type(), sizes[i], source_.shown(i).requires_grad());
    if (tensor.requires_grad()) requires_gradient_.insert(*flat_.id(tensor));
    captured_.push_back(wrapped(tensor));
  }
  for (size_t i = 0; i < free_.size(); ++i) captured_.push_back(wrapped(flat_.input(at::kDouble, {}, false)));
}

// ---- the run's operations

void ImportedRun::replay() {
  for (const Operation& operation : source_.operations()) {
    try {
      replay(operation);
    } catch (record::UnsupportedError& error) {
      if (error.operation == record::UnsupportedError::kNoOperation) error.operation = operation_;
      throw;
    }
    ++operation_;
    ends_.push_back(flat_.operations().size());
  }
  // A number within the derivative of a torch.autograd.Function would keep its present value.
  if (taken_.size() < free_.size())
    throw record::UnsupportedError("a number that differs from call to call, in a derivative");
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < source_.outputs().size(); ++i)
    outputs.push_back(unwrapped(with_gradient(source_.outputs()[i], source_.output_uses()[i])));
  match_.prove();
  flat_.set_outputs(outputs);
}

void ImportedRun::replay(const Operation& operation) {
  at::AutoGradMode grad_mode(operation.grad_mode);
  next_use_ = operation.first_use;
  if (!operation.op) return replay_derived(operation);
  std::string name = printed_name(operation.op->operator_name());
  FreeNumbers number_of(source_.record(), operation, free_);
  Stack stack;
  std::vector<bool> are_free;
  is_varied_ = false;
  const auto& parameters = operation.op->schema().arguments();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const IValue& argument = source_.arguments()[operation.arguments + i];
    role_ = role_of(*operation.op, i);
    auto number = number_of(argument);
    are_free.push_back(number.has_value());
    if (number) taken_.insert(*number);
    size_t numbers = captured_.size() - free_.size();
    stack.push_back(number ? IValue(captured_[numbers + *number]) : given(argument));
  }
  const auto changed = changed_by(*operation.op, stack);
  if (std::ranges::count(are_free, true) == 0) {
    operation.op->callBoxed(&stack);
  } else if (!call_with_tensors(*operation.op, name, stack, are_free)) {
    throw record::UnsupportedError(name + " of a number that differs from call to call");
  }
  for (const auto& [tensor, edge] : changed) {
    if (tensor.requires_grad() && torch::autograd::impl::gradient_edge(tensor) == edge)
      throw UnprovenGradientError(name + ": a change in place that autograd doesn't follow", operation_);
  }
  const std::vector<at::Tensor> results = tensors_of(stack);
  for (size_t i = 0; i < std::min(results.size(), operation.results.size()); ++i)
    keep(operation.results[i], results[i]);
  role_ = Role::kRead;
}

void ImportedRun::replay_derived(const Operation& operation) {
  std::vector<at::Tensor> inputs, values;
  is_varied_ = false;
  for (const at::Tensor& tensor : source_.arguments()[operation.arguments].toTensorVector())
    inputs.push_back(read(*source_.id(tensor)));
  for (const at::Tensor& tensor : source_.arguments()[operation.arguments + 1].toTensorVector())
    values.push_back(unwrapped(value(*source_.id(tensor))));
  const std::vector<at::Tensor> results =
      derived(inputs, values, derivative(operation.payload, inputs, values)->text());
  for (size_t i = 0; i < results.size(); ++i) keep(operation.results[i], results[i]);
}

/// The program of a derivative that the run recorded.
torch_operator::ProgramRef ImportedRun::derivative(size_t payload, const std::vector<at::Tensor>& inputs,
                                                   const std::vector<at::Tensor>& values) {
  const record::Paused paused;
  std::vector<at::Tensor> like;
  for (const auto* list : {&inputs, &values})
    for (const at::Tensor& tensor : *list) like.push_back(at::empty(tensor.sizes(), tensor.scalar_type()));
  torch_operator::ProgramRef program = callbacks_.derivative(payload, like);
  if (!passes::vanishes(program->program(), like.size()))
    throw UnprovenGradientError("a derivative of its own that isn't seen to be zero where the gradient is", operation_);
  return program;
}

/// The values with their own derivative by the inputs; wrapped as the inputs are.
std::vector<at::Tensor> ImportedRun::derived(const std::vector<at::Tensor>& inputs,
                                             const std::vector<at::Tensor>& values, std::string vjp) {
  std::vector<at::Tensor> bare;
  for (const at::Tensor& input : inputs) bare.push_back(unwrapped(input));
  std::vector<at::Tensor> results = flat_.derived(bare, values, std::move(vjp));
  if (!functional_) return results;
  for (at::Tensor& result : results) result = wrapped(result);
  Recording::set_history(results, inputs, {});
  return results;
}

IValue ImportedRun::given(const IValue& argument) {
  if (argument.isTensor()) {
    const at::Tensor& tensor = argument.toTensor();
    if (!tensor.defined()) return argument;
    auto id = source_.id(tensor);
    return id ? IValue(read(*id)) : argument;
  }
  if (argument.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : argument.toTensorVector()) tensors.push_back(given(tensor).toTensor());
    return tensors;
  }
  if (argument.isList() && !argument.isIntList() && !argument.isDoubleList() && !argument.isBoolList()) {
    auto list = argument.toList();
    c10::impl::GenericList copy(list.elementType());
    for (const IValue& item : list) copy.push_back(given(item));
    return copy;
  }
  return argument;
}

at::Tensor ImportedRun::value(int64_t id) const {
  return id >= 0 ? values_.at(static_cast<size_t>(id)) : captured_.at(static_cast<size_t>(-1 - id));
}

void ImportedRun::keep(int64_t id, const at::Tensor& tensor) {
  if (id < 0 || !tensor.defined()) return;
  if (values_.size() <= static_cast<size_t>(id)) values_.resize(static_cast<size_t>(id) + 1);
  values_[static_cast<size_t>(id)] = wrapped(tensor);
  if (is_varied_) varied_.insert(source_.storage(id));
  auto number = flat_.id(unwrapped(tensor));
  if (tensor.requires_grad() && number) requires_gradient_.insert(*number);
}

at::Tensor ImportedRun::wrapped(const at::Tensor& tensor) const {
  if (!functional_ || functionalization::isFunctionalTensor(tensor)) return tensor;
  at::Tensor wrapper = functionalization::to_functional_tensor(tensor);
  if (tensor.requires_grad())
    torch::autograd::impl::set_gradient_edge(wrapper, torch::autograd::impl::gradient_edge(tensor));
  return wrapper;
}

at::Tensor ImportedRun::unwrapped(const at::Tensor& tensor) const {
  if (!functionalization::isFunctionalTensor(tensor)) return tensor;
  functionalization::sync(tensor);
  return functionalization::from_functional_tensor(tensor);
}

// ---- operations as they arrive below autograd

bool ImportedRun::intercept(const OperatorHandle& op, Stack& stack) {
  std::string name = printed_name(op.operator_name());
  if (name == "weft.call.default" || name == "weft.stop_gradient.default") return false;
  if (name == "aten.detach.default" && !decomposing_.empty()) {
    at::AutoDispatchBelowADInplaceOrView below;
    stack.back() = stop_gradient(stack.back().toTensor());
    return true;
  }
  if (op.hasTag(at::Tag::nondeterministic_seeded)) return draw(op, stack);
  if (op.schema().is_mutable()) {
    in_place(op, stack);
    return true;
  }
  // Of complex numbers it is the parts' operations that stay whole.
  if (is_complex(torch::jit::last(stack, op.schema().arguments().size())))
    return !importer::knows_complex(name) && decompose(op, stack);
  if (whole_.contains(name)) return false;
  return !importer::knows_aten(name) && !importer::knows_complex(name) && decompose(op, stack);
}

size_t ImportedRun::source_of(size_t operation) const {
  return static_cast<size_t>(std::ranges::upper_bound(ends_, operation) - ends_.begin());
}

std::string ImportedRun::decomposed_at(size_t operation) const {
  const auto found = std::ranges::upper_bound(decomposed_, operation, {}, &Decomposed::end);
  return found != decomposed_.end() && found->first <= operation ? found->name : "";
}

/// Whether operations have gradients. The replay itself says where gradients end; within a decomposition, PyTorch's
/// grad mode does.
bool ImportedRun::has_gradients() const { return decomposing_.empty() || at::GradMode::is_enabled(); }

/// Random numbers are drawn before the program is run.
bool ImportedRun::draw(const OperatorHandle& op, Stack& stack) {
  std::string name = printed_name(op.operator_name());
  if (is_draw(name)) return false;
  if (op.schema().is_mutable()) {
    in_place(op, stack);
    return true;
  }
  if (name == "aten.native_dropout.default") {
    at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor x = stack[stack.size() - 3].toTensor();
    double p = stack[stack.size() - 2].toDouble();
    at::Tensor mask = at::bernoulli(at::empty(x.sizes(), x.scalar_type()), 1 - p);
    torch::jit::drop(stack, 3);
    stack.emplace_back(x * mask * (p < 1 ? 1 / (1 - p) : 0.0));
    stack.emplace_back(mask.to(at::kBool));
    return true;
  }
  // Of these operations PyTorch's decompositions draw other numbers than its kernels.
  const bool draws_others = name == "aten.cauchy.default" || name == "aten.geometric.default";
  if (!draws_others && decompose(op, stack)) return true;
  throw record::UnsupportedError(name + ": random numbers that can't be drawn ahead");
}

/// An operation that changes a tensor in place, if nothing shares memory with the tensor: from here on the tensor is
/// the result of the out-of-place variant.
void ImportedRun::in_place(const OperatorHandle& op, Stack& stack) {
  const size_t count = op.schema().arguments().size();
  Stack call(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  auto functional = record::out_of_place(op);
  if (!functional || !call[0].isTensor() || flat_.shares_memory(call[0].toTensor())) {
    if (functional_)
      throw record::UnsupportedError(printed_name(op.operator_name()) + ": a change in place within an operation");
    needs_functional_ = true;
    throw NeedsFunctionalError(op.schema().name());
  }
  at::Tensor tensor = call[0].toTensor();
  at::AutoDispatchBelowADInplaceOrView below;
  functional->callBoxed(&call);
  at::Tensor result = call[0].toTensor();
  if (result.scalar_type() != tensor.scalar_type()) result = result.to(tensor.scalar_type());
  flat_.rebind(tensor, result);
  torch::jit::drop(stack, count);
  stack.emplace_back(std::move(tensor));
}

bool ImportedRun::decompose(const OperatorHandle& op, Stack& stack) {
  std::string name = printed_name(op.operator_name());
  const size_t count = op.schema().arguments().size();
  Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  // PyTorch itself passes undefined tensors for optional arguments, which readers of a schema don't expect.
  for (IValue& argument : arguments) {
    if (argument.isTensor() && !argument.toTensor().defined()) argument = IValue();
  }
  const bool of_complex = is_complex(arguments);
  const c10::KernelFunction* kernel =
      of_complex ? decompose::find_complex(op.operator_name()) : decompose::find(op.operator_name());
  // Of complex numbers it may be made of the same operation of their parts.
  const std::string way = of_complex ? name + " of complex numbers" : name;
  if (decomposing_.contains(way) || (of_complex && kernel == nullptr)) return false;
  Stack results = arguments;
  at::AutoDispatchBelowADInplaceOrView below;
  const size_t first = flat_.operations().size();
  decomposing_.insert(way);
  if (kernel != nullptr) {
    kernel->callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), &results);
  } else {
    auto found = callbacks_.decompose(op, arguments);
    if (!found) {
      decomposing_.erase(way);
      return false;
    }
    results = std::move(*found);
  }
  decomposing_.erase(way);
  check_first(op, arguments, results);
  if (decomposing_.empty()) decomposed_.push_back({name, first, flat_.operations().size()});
  // A result that is an argument itself is cloned, since autograd gives each result a history of its own.
  for (IValue& result : results) {
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    for (const IValue& argument : arguments) {
      if (argument.isTensor() && argument.toTensor().is_same(result.toTensor())) result = result.toTensor().clone();
    }
  }
  torch::jit::drop(stack, count);
  stack.insert(stack.end(), results.begin(), results.end());
  return true;
}

/// Checks that a decomposition's result has the shape and type of the operation's own result, and gives it the
/// operation's strides, on which later views depend. If the type differs, the decomposition is wrong, or the operation
/// would refuse its arguments. Checks the first result only, since Meta kernels are not always right about the others.
void ImportedRun::check_first(const OperatorHandle& op, at::ArrayRef<IValue> arguments, Stack& results) {
  if (op.operator_name().name.starts_with("prims::")) return;  // Meta kernels of these say even less
  const auto shapes = [&] {
    const record::Paused paused;
    return record::compute_shapes(op, arguments);
  }();
  std::vector<at::Tensor> tensors = tensors_of(results);
  if (tensors.empty() || !tensors[0].defined() || shapes.results.empty() || shapes.results[0].empty()) return;
  const auto& expected = shapes.results[0][0];
  if (!expected.is_defined) return;
  if (tensors[0].scalar_type() != expected.dtype || tensors[0].sizes() != at::IntArrayRef(expected.sizes))
    throw record::UnsupportedError(printed_name(op.operator_name()) + ": is made of others as " +
                                   python_name(tensors[0].scalar_type()) + c10::str(tensors[0].sizes()));
  if (results[0].isTensor()) results[0] = with_strides(tensors[0], expected.strides);
}

}  // namespace weft::programs
