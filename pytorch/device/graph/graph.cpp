#include "device/graph/graph.h"

#include <algorithm>

#include "base/fork.h"
#include "device/graph/memory.h"

namespace weft::device {

namespace {

struct Graph {
  std::mutex mutex;
  Value* first = nullptr;  ///< the list of the pending values that storages hold
  uint64_t serial = 0;
  MemoryCounts memory;
  Graph() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Graph& graph = *new Graph();
std::atomic<int64_t> nodes{0};
std::atomic<uint64_t> next_thread{1}, next_value{1};

uint64_t this_thread() {
  thread_local const uint64_t number = next_thread.fetch_add(1, std::memory_order_relaxed);
  return number;
}

Group* root(Group* group) {
  while (group->parent) {
    if (group->parent->parent) group->parent = group->parent->parent;
    group = group->parent.get();
  }
  return group;
}

bool has(const Group& group, uint64_t thread) {
  return std::ranges::find(group.threads, thread) != group.threads.end();
}

void join(Group& group, uint64_t thread) {
  if (!has(group, thread)) group.threads.push_back(thread);
}

Group* join(Group* one, Group* other) {
  one = root(one), other = root(other);
  if (one == other) return one;
  if (one->size < other->size) std::swap(one, other);
  one->size += other->size;
  for (uint64_t thread : other->threads) join(*one, thread);
  other->parent = c10::intrusive_ptr<Group>::reclaim_copy(one);
  return one;
}

/// Nodes whose last reference has gone, to be freed one after the other. A chain of a thousand operations would be
/// freed by a thousand nested destructors otherwise.
thread_local std::vector<NodeRef>* dying = nullptr;

void let_go(NodeRef node) {
  if (dying != nullptr) return dying->push_back(std::move(node));
  std::vector<NodeRef> list;
  dying = &list;
  list.push_back(std::move(node));
  while (!list.empty()) {
    NodeRef last = std::move(list.back());
    list.pop_back();
    last.reset();
  }
  dying = nullptr;
}

void unlink(Value& value) {
  if (value.previous != nullptr) value.previous->next = value.next;
  if (value.next != nullptr) value.next->previous = value.previous;
  if (graph.first == &value) graph.first = value.next;
  value.previous = value.next = nullptr;
}

void add_bytes(const Value& value) {
  if (!value.tensor.defined()) return;
  graph.memory.bytes += static_cast<int64_t>(value.tensor.nbytes());
  graph.memory.most_bytes = std::max(graph.memory.most_bytes, graph.memory.bytes);
}

bool is_linked(const Value& value) { return value.previous != nullptr || graph.first == &value; }

}  // namespace

std::mutex& graph_mutex() { return graph.mutex; }

int64_t pending_nodes() { return nodes.load(std::memory_order_relaxed); }

MemoryCounts memory_counts() {
  std::lock_guard lock(graph.mutex);
  return graph.memory;
}

void forget_peak() {
  std::lock_guard lock(graph.mutex);
  graph.memory.most_bytes = graph.memory.bytes;
}

Value::Value(at::ScalarType dtype, at::IntArrayRef sizes)
    : number(next_value.fetch_add(1, std::memory_order_relaxed)), dtype(dtype), sizes(sizes.begin(), sizes.end()) {}

Value::~Value() {
  if (maker) let_go(std::move(maker));
}

Node::~Node() {
  if (group != nullptr) nodes.fetch_sub(1, std::memory_order_relaxed);
}

ValueRef result_of(const NodeRef& node, uint32_t result, at::ScalarType dtype, at::IntArrayRef sizes) {
  auto value = c10::make_intrusive<Value>(dtype, sizes);
  value->maker = node;
  value->result = result;
  return value;
}

ValueRef known(at::Tensor tensor) {
  auto value = c10::make_intrusive<Value>(tensor.scalar_type(), tensor.sizes());
  value->tensor = std::move(tensor);
  return value;
}

void connect(Node& node) {
  std::lock_guard lock(graph.mutex);
  node.serial = ++graph.serial;
  Group* group = nullptr;
  for (const ValueRef& operand : node.operands) {
    if (!operand->maker) continue;
    Group* other = operand->maker->group.get();
    group = group == nullptr ? root(other) : join(group, other);
  }
  if (group == nullptr) {
    node.group = c10::make_intrusive<Group>(this_thread());
  } else {
    join(*group, this_thread());
    node.group = c10::intrusive_ptr<Group>::reclaim_copy(group);
  }
  nodes.fetch_add(1, std::memory_order_relaxed);
}

void hold(Value& value) { hold(value, std::lock_guard(graph.mutex)); }

void release(Value& value) { release(value, std::lock_guard(graph.mutex)); }

void hold(Value& value, const std::lock_guard<std::mutex>& /*locked*/) {
  if (value.holders++ > 0) return;
  if (!value.maker) return add_bytes(value);
  value.next = graph.first;
  if (graph.first != nullptr) graph.first->previous = &value;
  graph.first = &value;
}

void release(Value& value, const std::lock_guard<std::mutex>& /*locked*/) {
  if (--value.holders > 0) return;
  if (is_linked(value)) unlink(value);
  if (value.tensor.defined()) graph.memory.bytes -= static_cast<int64_t>(value.tensor.nbytes());
}

bool is_pending(const Value& value) {
  std::lock_guard lock(graph.mutex);
  return !value.tensor.defined() && !value.error;
}

void set_tensor(Value& value, at::Tensor tensor) {
  NodeRef maker;  // freed after the lock is released
  std::lock_guard lock(graph.mutex);
  value.tensor = std::move(tensor);
  value.error = nullptr;
  maker = std::move(value.maker);
  if (value.holders > 0) add_bytes(value);
  if (is_linked(value)) unlink(value);
}

void set_error(Value& value, std::exception_ptr error) {
  NodeRef maker;
  std::lock_guard lock(graph.mutex);
  value.error = std::move(error);
  maker = std::move(value.maker);
  if (is_linked(value)) unlink(value);
}

std::vector<ValueRef> pending_of_this_thread(const Value* also) {
  std::vector<ValueRef> found;
  std::lock_guard lock(graph.mutex);
  Group* other = also != nullptr && also->maker ? root(also->maker->group.get()) : nullptr;
  for (Value* value = graph.first; value != nullptr; value = value->next) {
    Group* group = root(value->maker->group.get());
    if (group == other || has(*group, this_thread())) found.push_back(ValueRef::reclaim_copy(value));
  }
  std::ranges::sort(found, {}, [](const ValueRef& value) { return std::pair(value->maker->serial, value->result); });
  return found;
}

}  // namespace weft::device
