#include "device/arguments.h"

#include <bit>

#include "device/called_program.h"
#include "device/generator.h"
#include "device/run.h"
#include "device/storage.h"
#include "device/views.h"
#include "recorder/result_shapes.h"

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

bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

class Taker {
 public:
  Taker(const Operator& op, Given& given) : op_(op), given_(given) {}

  IValue take(const IValue& argument, Slot slot) {
    if (slot == Slot::kTensor) return argument.isNone() ? argument : take(argument.toTensor());
    if (slot == Slot::kTensors) return argument.isNone() ? argument : take_list(argument);
    if (slot == Slot::kProgram) return called_program(argument.toStringView());
    if (slot == Slot::kDevice) return argument.isNone() ? argument : IValue(c10::Device(c10::kCPU));
    if (argument.isSymInt()) return argument.toSymInt().guard_int(__FILE__, __LINE__);
    if (argument.isSymIntList()) {
      std::vector<int64_t> sizes;
      for (const auto& one : argument.toSymIntVector()) sizes.push_back(one.guard_int(__FILE__, __LINE__));
      return sizes;
    }
    return argument;
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
      TORCH_CHECK(tensor.dim() == 0 || op_.takes_any_device,
                  "Expected all tensors to be on the same device, but found "
                  "at least two devices, weft:0 and ",
                  tensor.device(), "! (when checking arguments for ", op_.schema().name(), ")");
      given_.operands.push_back(snapshot(tensor));
    } else {
      given_.operands.push_back(read(tensor));
    }
    return static_cast<int64_t>(given_.operands.size()) - 1;
  }

  const Operator& op_;
  Given& given_;
};

}  // namespace

Given take(const Operator& op, at::ArrayRef<IValue> arguments) {
  Given given;
  given.arguments.reserve(arguments.size());
  Taker taker(op, given);
  for (size_t i = 0; i < arguments.size(); ++i) given.arguments.push_back(taker.take(arguments[i], op.slots[i]));
  return given;
}

namespace {

enum Tag : int64_t { kNone, kTensor, kWrapped, kInt, kBool, kDouble, kText, kDevice, kList };

/// The operation with its arguments' types, under which shapes are found again.
class Key {
 public:
  Key(const Operator& op, at::ArrayRef<IValue> arguments, std::vector<int64_t>& words) : op_(op), words_(words) {
    words_.clear();
    // The recorder's keys of the same operation have no such word.
    words_.insert(words_.end(), {-op.traits.name, static_cast<int64_t>(c10::get_default_dtype_as_scalartype())});
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (op.slots[i] == Slot::kProgram) {
        pair(kText, called_program(called_program(arguments[i].toStringView())).number);
      } else {
        add(arguments[i]);
      }
    }
  }

  bool is_complete() const { return is_complete_; }

 private:
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return words_.push_back(kNone);
    words_.insert(words_.end(),
                  {is_number(tensor) ? kWrapped : kTensor, static_cast<int64_t>(tensor.scalar_type()), tensor.dim()});
    words_.insert(words_.end(), tensor.sizes().begin(), tensor.sizes().end());
    words_.insert(words_.end(), tensor.strides().begin(), tensor.strides().end());
  }

  void add(const IValue& argument) {
    if (argument.isTensor()) return add(argument.toTensor());
    if (argument.isNone()) return words_.push_back(kNone);
    if (argument.isBool()) return pair(kBool, static_cast<int64_t>(argument.toBool()));
    if (argument.isInt()) return pair(kInt, argument.toInt());
    if (argument.isSymInt()) return pair(kInt, argument.toSymInt().guard_int(__FILE__, __LINE__));
    if (argument.isDevice()) return words_.push_back(kDevice);
    if (argument.isDouble()) {
      words_.push_back(kDouble);
      if (!op_.traits.takes_tensors) words_.push_back(std::bit_cast<int64_t>(argument.toDouble()));
      return;
    }
    if (argument.isList()) {
      const auto list = argument.toListRef();
      pair(kList, static_cast<int64_t>(list.size()));
      for (const IValue& item : list) add(item);
      return;
    }
    if (!argument.isString()) return static_cast<void>(is_complete_ = false);
    pair(kText, static_cast<int64_t>(argument.toStringRef().size()));
    for (const char letter : argument.toStringRef()) words_.push_back(letter);
  }

  void pair(int64_t tag, int64_t word) { words_.insert(words_.end(), {tag, word}); }

  const Operator& op_;
  std::vector<int64_t>& words_;
  bool is_complete_ = true;
};

}  // namespace

std::shared_ptr<const recorder::ResultShapes> shapes_of(const Operator& op, at::ArrayRef<IValue> arguments) {
  thread_local std::vector<int64_t> words;
  const Key key(op, arguments, words);
  if (!key.is_complete())
    return std::make_shared<const recorder::ResultShapes>(recorder::compute_shapes(op.handle, arguments));
  if (auto found = recorder::known_shapes(words)) return found;
  const std::vector<int64_t> copy = words;  // a Meta kernel in Python may come back here
  return recorder::find_shapes(op.handle, arguments, copy);
}

namespace {

at::Tensor tensor_on_cpu(const at::Tensor& tensor) { return is_on_device(tensor) ? computed(read(tensor)) : tensor; }

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
