#include "device/graph/arguments.h"

#include "device/graph/storage.h"
#include "device/graph/views.h"
#include "device/kernels/generator.h"
#include "device/kernels/sparse.h"
#include "device/run/program_argument.h"
#include "device/run/run.h"
#include "record/argument_words.h"

namespace weft::device {

using c10::IValue;
using Slot = Operator::Slot;

ValueRef snapshot(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == at::kStrided && tensor.device().is_cpu(), "weft: a tensor of layout ", tensor.layout(),
              " on ", tensor.device(), " for an operation on device weft");
  at::Tensor copy = tensor.detach().clone(at::MemoryFormat::Contiguous).resolve_conj().resolve_neg();
  count_bytes(copy.nbytes());
  return known(std::move(copy));
}

namespace {

class Taker {
 public:
  Taker(const Operator& op, Operands& operands) : op_(op), operands_(operands) {}

  IValue take(const IValue& argument, Slot slot) {
    if (slot == Slot::kTensor) return argument.isNone() ? argument : take(argument.toTensor());
    if (slot == Slot::kTensors) return argument.isNone() ? argument : take_list(argument);
    if (slot == Slot::kProgram) return program_argument(argument.toStringView());
    if (slot == Slot::kDevice) return argument.isNone() ? argument : IValue(c10::Device(c10::kCPU));
    if (argument.isSymInt()) return argument.toSymInt().guard_int(__FILE__, __LINE__);
    if (argument.isSymIntList()) return at::IntArrayRef(record::integers_of(argument));
    return argument;
  }

  void take_operands(const IValue& argument, Slot slot) {
    if (slot == Slot::kTensor && !argument.isNone()) {
      const at::Tensor& tensor = argument.toTensor();
      if (tensor.defined() && !is_number(tensor)) operand(tensor);
    } else if (slot == Slot::kTensors && !argument.isNone()) {
      for (const IValue& item : argument.toListRef())
        if (!item.isNone() && item.toTensor().defined()) operand(item.toTensor());
    }
  }

 private:
  IValue take(const at::Tensor& tensor) {
    if (!tensor.defined()) return {};
    if (is_number(tensor)) return tensor;
    return operand(tensor);
  }

  IValue take_list(const IValue& argument) {
    std::vector<int64_t> numbers;
    for (const IValue& item : argument.toListRef()) {
      const bool is_none = item.isNone() || !item.toTensor().defined();
      numbers.push_back(is_none ? -1 : operand(item.toTensor()));
    }
    return numbers;
  }

  int64_t operand(const at::Tensor& tensor) {
    if (!is_on_device(tensor)) {
      if (tensor.key_set().has_backend(c10::BackendComponent::PrivateUse1Bit)) storage_of(tensor);  // has none
      if (tensor.dim() != 0 && !op_.takes_any_device) check_on_device(tensor, op_.schema().name());
      operands_.push_back(snapshot(tensor));
    } else {
      operands_.push_back(read(tensor));
    }
    return static_cast<int64_t>(operands_.size()) - 1;
  }

  const Operator& op_;
  Operands& operands_;
};

}  // namespace

Given take(const Operator& op, at::ArrayRef<IValue> arguments) {
  Given given;
  given.arguments.reserve(arguments.size());
  Taker taker(op, given.operands);
  for (size_t i = 0; i < arguments.size(); ++i) given.arguments.push_back(taker.take(arguments[i], op.slots[i]));
  return given;
}

Operands take_operands(const Operator& op, at::ArrayRef<IValue> arguments) {
  Operands operands;
  Taker taker(op, operands);
  for (size_t i = 0; i < arguments.size(); ++i) taker.take_operands(arguments[i], op.slots[i]);
  return operands;
}

namespace {

at::Tensor tensor_on_cpu(const at::Tensor& tensor) {
  if (!is_on_device(tensor)) return tensor;
  return tensor.layout() == at::kStrided ? computed(read(tensor)) : sparse_on_cpu(tensor);
}

}  // namespace

torch::jit::Stack on_cpu(const Operator& op, at::ArrayRef<IValue> arguments) {
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const IValue& argument = arguments[i];
    if (argument.isTensor()) {
      stack.emplace_back(tensor_on_cpu(argument.toTensor()));
    } else if (argument.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& each : argument.toTensorVector()) tensors.push_back(tensor_on_cpu(each));
      stack.emplace_back(std::move(tensors));
    } else if (op.slots[i] == Slot::kTensors && argument.isList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const IValue& each : argument.toListRef())
        tensors.push_back(each.isNone() ? std::nullopt : std::optional(tensor_on_cpu(each.toTensor())));
      stack.emplace_back(std::move(tensors));
    } else if (op.slots[i] == Slot::kDevice && argument.isDevice()) {
      stack.emplace_back(c10::Device(c10::kCPU));
    } else if (op.slots[i] == Slot::kGenerator) {
      stack.push_back(generator_on_cpu(argument));
    } else {
      stack.push_back(argument);
    }
  }
  return stack;
}

}  // namespace weft::device
