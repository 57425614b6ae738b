#include <algorithm>

#include "record/recording_internal.h"

namespace weft::record {

/// Runs an operation that reads values. The operation may read the values of tensors from outside, since these are read
/// again at every call.
void Recording::run_now(const c10::OperatorHandle& op, torch::jit::Stack& stack) try {
  const size_t count = op.schema().arguments().size();
  torch::jit::Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  for (c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      argument = evaluate(argument.toTensor());
    } else if (argument.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& tensor : argument.toTensorVector()) tensors.push_back(evaluate(tensor));
      argument = std::move(tensors);
    }
  }
  torch::jit::drop(stack, count);
  NotRecorded guard;
  op.callBoxed(&arguments);
  stack.insert(stack.end(), arguments.begin(), arguments.end());
} catch (const ReadsValueError&) {
  if (!op.hasTag(at::Tag::dynamic_output_shape)) throw;
  throw UnsupportedError(op.schema().name() + ": the shape of its result depends on values");
}

at::Tensor Recording::evaluate(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  auto* value = own(tensor);
  if (value != nullptr && changed_.contains(value->storage)) throw ReadsValueError("a value that the step changes");
  if (value != nullptr) return evaluate(value->id);
  at::Tensor known = original(tensor);
  if (as_recording(known) != nullptr) throw ReadsValueError("a value of an outer step");
  if (is_wrapper(known)) throw ReadsValueError("a value of a transform");
  return known;
}

at::Tensor Recording::evaluate(int64_t value) {
  auto place = static_cast<size_t>(value);
  if (place >= makers_.size() || makers_[place] == kNoMaker) throw ReadsValueError("a value that the step computes");
  const Operation& operation = operations_[makers_[place]];
  if (!operation.op) throw ReadsValueError("a value that the step computes");
  const auto& schema = operation.op->schema();
  if (operation.op->hasTag(at::Tag::nondeterministic_seeded) || schema.is_mutable()) {
    throw ReadsValueError("a value that the step computes");
  }
  torch::jit::Stack stack;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::IValue& argument = arguments_[operation.arguments + i];
    if (argument.isTensor()) {
      stack.emplace_back(evaluate(argument.toTensor()));
    } else if (argument.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& tensor : argument.toTensorVector()) tensors.push_back(evaluate(tensor));
      stack.emplace_back(std::move(tensors));
    } else {
      stack.push_back(argument);
    }
  }
  {
    NotRecorded guard;
    at::AutoGradMode no_grad(false);
    operation.op->callBoxed(&stack);
  }
  auto at = std::find(operation.results.begin(), operation.results.end(), value) - operation.results.begin();
  if (stack.size() == 1 && stack[0].isTensorList()) return stack[0].toTensorVector()[static_cast<size_t>(at)];
  return stack[static_cast<size_t>(at)].toTensor();
}

}  // namespace weft::record
