#include "device/batch.h"

#include <algorithm>

#include "device/called_program.h"
#include "device/operators.h"
#include "recorder/recording.h"

namespace weft::device {

using c10::IValue;
using recorder::Record;
using Slot = Operator::Slot;

namespace {
uint64_t batches = 0;
}

Batch::Batch(std::vector<ValueRef> outputs) : serial_(++batches), outputs_(std::move(outputs)) {
  std::vector<Node*> open;
  for (const ValueRef& output : outputs_) visit(output, open);
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (const ValueRef& operand : node->operands) visit(operand, open);
  }
  std::ranges::sort(nodes_, {}, [](const NodeRef& node) { return node->serial; });
  for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i]->place = static_cast<int64_t>(i);
  results_.resize(nodes_.size());
  auto place = [&](const ValueRef& value) {
    if (!value->maker) return add_leaf(value);
    auto& results = results_[static_cast<size_t>(value->maker->place)];
    if (results.size() <= value->result) results.resize(value->result + 1);
    results[value->result] = value;
  };
  for (const NodeRef& node : nodes_)
    for (const ValueRef& operand : node->operands) place(operand);
  for (const ValueRef& output : outputs_) place(output);
}

void Batch::visit(const ValueRef& value, std::vector<Node*>& open) {
  if (!value->maker || value->maker->batch == serial_) return;
  value->maker->batch = serial_;
  nodes_.push_back(value->maker);
  open.push_back(value->maker.get());
}

void Batch::add_leaf(const ValueRef& value) {
  if (leaf_numbers_.emplace(value.get(), leaves_.size()).second) leaves_.push_back(value);
}

void Batch::done(size_t node) {
  results_[node].clear();
  nodes_[node].reset();
}

int64_t Batch::place(const Value& value) const {
  return value.maker ? value.maker->place : -1 - leaf_numbers_.at(&value);
}

const Value* Batch::failed() const {
  for (const ValueRef& leaf : leaves_)
    if (leaf->error) return leaf.get();
  return nullptr;
}

namespace {

enum Word : int64_t { kNone, kOperand, kNumberTensor, kInt, kBool, kDouble, kInts, kDoubles, kText, kList, kOther };
enum Part : int64_t { kOutputs = -1 };

class Writer {
 public:
  Writer(const Batch& batch, Record& record) : batch_(batch), record_(record), is_written_(batch.leaves().size()) {}

  void write(const Node& node) {
    record_.fixed(node.op->traits.name);
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      if (node.op->slots[i] == Slot::kTensor || node.op->slots[i] == Slot::kTensors) {
        write_operands(node, node.arguments[i]);
      } else if (node.op->slots[i] == Slot::kProgram) {
        record_.fixed(called_program(node.arguments[i]).number);
      } else {
        write(node.arguments[i]);
      }
    }
    for (const auto& result : node.results) {
      record_.fixed(result.is_defined ? static_cast<int64_t>(result.dtype) : -1);
      record_.sizes({result.sizes.data(), result.sizes.size()});
    }
  }

  /// A leaf's type stands where it is first read.
  void write(const Value& value) {
    const int64_t place = batch_.place(value);
    record_.fixed(place);
    if (place >= 0) return record_.fixed(value.result);
    const auto leaf = static_cast<size_t>(-1 - place);
    if (is_written_[leaf]) return;
    is_written_[leaf] = true;
    record_.fixed(static_cast<int64_t>(value.dtype));
    record_.sizes({value.sizes.data(), value.sizes.size()});
  }

 private:
  void write_operands(const Node& node, const IValue& argument) {
    if (argument.isInt()) {
      record_.fixed(kOperand);
      return write(*node.operands[static_cast<size_t>(argument.toInt())]);
    }
    if (argument.isTensor()) return write_number(argument.toTensor());
    if (argument.isNone()) return record_.fixed(kNone);
    record_.fixed(kList);
    const auto list = argument.toIntVector();
    record_.fixed(static_cast<int64_t>(list.size()));
    for (int64_t operand : list) {
      record_.fixed(operand >= 0 ? kOperand : kNone);
      if (operand >= 0) write(*node.operands[static_cast<size_t>(operand)]);
    }
  }

  void write_number(const at::Tensor& number) {
    record_.fixed(kNumberTensor);
    record_.fixed(static_cast<int64_t>(number.scalar_type()));
    if (number.scalar_type() == at::kDouble) return record_.number(*number.const_data_ptr<double>());
    if (number.scalar_type() == at::kLong) return record_.size(*number.const_data_ptr<int64_t>());
    if (number.scalar_type() == at::kBool)
      return record_.fixed(static_cast<int64_t>(*number.const_data_ptr<bool>()));
    throw recorder::UnsupportedError("a number of " + c10::str(number.scalar_type()));
  }

  void write(const IValue& value) {
    if (value.isNone()) return record_.fixed(kNone);
    if (value.isBool()) return record_.fixed(kBool), record_.fixed(static_cast<int64_t>(value.toBool()));
    if (value.isInt()) return record_.fixed(kInt), record_.size(value.toInt());
    if (value.isDouble()) return record_.fixed(kDouble), record_.number(value.toDouble());
    if (value.isIntList()) {
      record_.fixed(kInts);
      const auto list = value.toIntVector();
      return record_.sizes(list);
    }
    if (value.isString()) return record_.fixed(kText), record_.text(value.toStringRef());
    if (value.isDevice()) return record_.fixed(kOther);  // the CPU
    if (value.isList()) {
      const auto list = value.toListRef();
      record_.fixed(kList);
      record_.fixed(static_cast<int64_t>(list.size()));
      for (const IValue& item : list) write(item);
      return;
    }
    throw recorder::UnsupportedError("an argument of type " + value.tagKind());
  }

  const Batch& batch_;
  Record& record_;
  std::vector<bool> is_written_;  ///< by leaf: its type
};

}  // namespace

Record Batch::record() const {
  Record record;
  Writer writer(*this, record);
  for (const NodeRef& node : nodes_) writer.write(*node);
  record.fixed(kOutputs);
  for (const ValueRef& output : outputs_) writer.write(*output);
  return record;
}

}  // namespace weft::device
