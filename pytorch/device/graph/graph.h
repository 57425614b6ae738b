#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "device/graph/pooled.h"
#include "operator/aten.h"
#include "record/meta/result_shapes.h"

namespace weft::device {

struct Operator;
struct Node;
struct Group;

using Results = std::shared_ptr<const std::vector<record::ResultShape>>;

/// All of a call but the values of its operands. Calls that are repeated share one (forms.h).
struct Form final : c10::intrusive_ptr_target {
  const Operator* op = nullptr;
  /// In the schema's order. A tensor is given by its operand's number, a list of tensors by the list of their numbers
  /// (-1 for none). A tensor that stands for a Python number is given as itself.
  std::vector<c10::IValue> arguments;
  /// The types of the results: first the new results, then the new values of the tensors that the operation writes.
  Results results;
  /// Two forms with the same number differ in `numbers` alone, and their operands have the same types. 0: not known.
  int64_t number = 0;
  c10::SmallVector<double, 2> numbers;  ///< the floating-point numbers among the arguments, in order
};
using FormRef = c10::intrusive_ptr<Form>;

using Sizes = c10::SmallVector<int64_t, 4>;

/// Nodes that have to run together, since they are connected. The steps of two threads are two groups, and neither
/// thread cuts the other's step in two. A union-find forest.
struct Group final : c10::intrusive_ptr_target, Pooled<Group> {
  explicit Group(uint64_t thread) : threads{thread} {}
  c10::intrusive_ptr<Group> parent;
  int64_t size = 1;
  c10::SmallVector<uint64_t, 2> threads;
};

/// A known tensor, or a tensor that is still to be computed. It never changes: an operation in place makes another
/// value.
struct Value final : c10::intrusive_ptr_target, Pooled<Value> {
  Value(at::ScalarType dtype, at::IntArrayRef sizes);
  ~Value() override;

  const uint64_t number;  ///< a serial number
  at::ScalarType dtype;
  Sizes sizes;

  // The fields below are changed by whoever runs batches (run.h), under graph_mutex().
  at::Tensor tensor;                           ///< on the CPU, contiguous; undefined while pending
  c10::intrusive_ptr<Node> maker;              ///< while pending
  uint32_t result = 0;                         ///< the index among the maker's results
  std::exception_ptr error;                    ///< why there is no tensor, and will never be one
  int32_t holders = 0;                         ///< how many storages have it as their contents
  uint64_t batch = 0;                          ///< the last Batch that it was a leaf of,
  size_t leaf = 0;                             ///< and its number there
  uint64_t replaces = 0;                       ///< the serial number of the known value that it replaced in its storage
  Value *previous = nullptr, *next = nullptr;  ///< in the list of the pending values that storages hold
};
using ValueRef = c10::intrusive_ptr<Value>;

using Operands = c10::SmallVector<ValueRef, 3>;

/// An operation that was recorded, and has not run yet.
struct Node final : c10::intrusive_ptr_target, Pooled<Node> {
  ~Node() override;

  const Operator& op() const { return *form->op; }
  const std::vector<c10::IValue>& arguments() const { return form->arguments; }
  const std::vector<record::ResultShape>& results() const { return *form->results; }

  FormRef form;
  Operands operands;
  uint64_t serial = 0;  ///< its place in the order of recording
  c10::intrusive_ptr<Group> group;
  uint64_t batch = 0;  ///< the last Batch that it was part of,
  int64_t place = 0;   ///< and its number there
};
using NodeRef = c10::intrusive_ptr<Node>;

/// Guards the graph: short sections that call nothing.
std::mutex& graph_mutex();

/// A result of the node, which is pending.
ValueRef result_of(const NodeRef& node, uint32_t result, at::ScalarType dtype, at::IntArrayRef sizes);
/// A value that is known. `tensor` is contiguous, on the CPU, and nobody changes it.
ValueRef known(at::Tensor tensor);

/// Completes the node. It gets a serial number, and its group is united with those of its pending operands and of the
/// calling thread.
void connect(Node& node);
/// Counts one more storage, or one less, whose contents are this value. A caller that holds graph_mutex() passes its
/// lock.
void hold(Value& value);
void release(Value& value);
void hold(Value& value, const std::lock_guard<std::mutex>& locked);
void release(Value& value, const std::lock_guard<std::mutex>& locked);

/// Gives a value its tensor, or the reason why it has none.
void set_tensor(Value& value, at::Tensor tensor);
void set_error(Value& value, std::exception_ptr error);

bool is_pending(const Value& value);

/// The pending values that storages hold, in the order in which they were recorded. Only values of the groups in which
/// the calling thread has recorded, and of the group of `also`, if given.
std::vector<ValueRef> pending_of_this_thread(const Value* also);

/// The number of nodes recorded and not yet run, of all threads.
int64_t pending_nodes();

}  // namespace weft::device
