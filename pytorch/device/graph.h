#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "operator/aten.h"
#include "record/result_shapes.h"

namespace weft::device {

struct Operator;
struct Node;
struct Group;

using Results = std::shared_ptr<const std::vector<record::ResultShape>>;

using Sizes = c10::SmallVector<int64_t, 4>;

/// Nodes that have to run together, since they are connected: the steps of two threads are two groups, and neither cuts
/// the other's step in two. A union-find forest.
struct Group final : c10::intrusive_ptr_target {
  explicit Group(uint64_t thread) : threads{thread} {}
  c10::intrusive_ptr<Group> parent;
  int64_t size = 1;
  c10::SmallVector<uint64_t, 2> threads;
};

/// A tensor that is known, or what will compute it. It never changes: an operation in place makes another value.
struct Value final : c10::intrusive_ptr_target {
  Value(at::ScalarType dtype, at::IntArrayRef sizes);
  ~Value() override;

  const uint64_t number;  ///< its own
  at::ScalarType dtype;
  Sizes sizes;

  // Below: changed by whoever runs batches (run.h), under graph_mutex().
  at::Tensor tensor;                           ///< on the CPU, contiguous; undefined while pending
  c10::intrusive_ptr<Node> maker;              ///< while pending
  uint32_t result = 0;                         ///< which of the maker's
  std::exception_ptr error;                    ///< why there is no tensor and never will be
  int32_t holders = 0;                         ///< storages whose contents it is
  uint64_t replaces = 0;                       ///< the number of what was known last in the storage that it came to
  Value *previous = nullptr, *next = nullptr;  ///< among the pending values that are held
};
using ValueRef = c10::intrusive_ptr<Value>;

/// An operation that was recorded, and has not run yet.
struct Node final : c10::intrusive_ptr_target {
  ~Node() override;

  const Operator* op = nullptr;
  /// As the schema has them. A tensor is the number of an operand, a list of tensors the list of theirs (-1 for none);
  /// a tensor that stands for a Python number is itself.
  std::vector<c10::IValue> arguments;
  c10::SmallVector<ValueRef, 3> operands;
  /// The types of its results: those of the operation that are no arguments, then the new values of what it writes to.
  Results results;
  uint64_t serial = 0;  ///< the order in which operations were recorded
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

/// Completes the node: its serial number and its group, that of its pending operands and of the calling thread.
void connect(Node& node);
/// Counts storages that have the value as their contents.
void hold(Value& value);
void release(Value& value);

/// Gives a value its tensor, or the reason why it has none.
void set_tensor(Value& value, at::Tensor tensor);
void set_error(Value& value, std::exception_ptr error);

bool is_pending(const Value& value);

/// The values that storages hold, pending, of the groups that the calling thread has recorded in, and of the group of
/// `also`, if any; in the order in which they were recorded.
std::vector<ValueRef> pending_of_this_thread(const Value* also);

/// Nodes recorded and not yet run, by anybody.
int64_t pending_nodes();

}  // namespace weft::device
