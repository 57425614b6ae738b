#include "device/run/run.h"

#include <Python.h>
#include <pthread.h>

#include <algorithm>

#include "device/graph/batch.h"
#include "device/kernels/half_kernels.h"
#include "device/kernels/operators.h"
#include "device/run/interruption.h"
#include "device/run/programs.h"
#include "device/run/replay.h"
#include "device/run/watched_runs.h"
#include "operator/call.h"
#include "operator/warnings.h"
#include "record/aside.h"

namespace weft::device {
namespace {

constexpr int64_t kLongestRecord = 1 << 13;
constexpr size_t kMostPendingBytes = size_t{1} << 28;

struct RunState {
  /// Held by the thread that runs a batch. A fork doesn't take it, since the holder may be waiting for the GIL.
  std::mutex mutex;
  std::atomic<int64_t> longest{kLongestRecord};
  std::atomic<size_t> bytes{0};
};

/// Made at load (base/fork.h), never destroyed.
RunState& run_state = *new RunState();

/// For the child of a fork that happened while another thread was running a batch. That batch is still pending here.
void free_turn() {
  if (run_state.mutex.try_lock()) return run_state.mutex.unlock();
  new (&run_state.mutex) std::mutex();
  forget_programs();
}

[[maybe_unused]] const int kFreesTurn = pthread_atfork(nullptr, nullptr, free_turn);

thread_local bool is_running = false;

/// The lock of threads that run batches. A thread releases the GIL while it waits: the running thread may need it,
/// since some of PyTorch's functions are in Python.
class Turn {
 public:
  Turn() {
    TORCH_CHECK(!is_running, "weft: an operation that runs on the CPU within a batch reads a tensor of the device");
    if (!run_state.mutex.try_lock()) wait();
    is_running = true;
  }
  ~Turn() {
    is_running = false;
    run_state.mutex.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  static void wait() {
    PyThreadState* python = Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
    run_state.mutex.lock();
    if (python != nullptr) PyEval_RestoreThread(python);
  }
};

/// A result as a value's tensor: contiguous, alone in its memory, of the recorded type.
at::Tensor as_recorded(const at::Tensor& tensor, const Value& value, const Node& node) {
  TORCH_CHECK(tensor.sizes() == at::IntArrayRef(value.sizes), "weft internal error: ", node.op().schema().name(),
              " gives ", tensor.sizes(), " where ", at::IntArrayRef(value.sizes), " was recorded");
  at::Tensor found = tensor.to(value.dtype).resolve_conj().resolve_neg().contiguous();
  if (found._is_zerotensor()) found = at::zeros(found.sizes(), found.options());
  return found;
}

void run_node(const Node& node, std::span<const ValueRef> results) {
  for (const ValueRef& operand : node.operands)
    if (operand->error) std::rethrow_exception(operand->error);
  torch::jit::Stack stack = stack_of(node, node.arguments(), [](const Value& value) { return value.tensor; });
  const std::vector<at::Tensor> tensors =
      results_of(node, std::move(stack), [&](torch::jit::Stack& arguments) { call_on_cpu(node.op(), arguments); });
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i]) set_tensor(*results[i], as_recorded(tensors.at(i), *results[i], node));
}

/// If an operation that was to change a tensor has failed, the tensor keeps its old value, as after an error in eager
/// mode, and the error is raised. Parameters survive a wrong index.
void keep_replaced(const Batch& batch) {
  std::exception_ptr error;
  for (size_t i = 0; i < batch.outputs().size(); ++i) {
    Value& value = *batch.outputs()[i];
    if (!value.error) continue;
    const ValueRef old = batch.replaced(i);
    if (!old || !old->tensor.defined()) continue;
    error = value.error;
    set_tensor(value, old->tensor);
  }
  if (error) std::rethrow_exception(error);
}

/// Frees each old value that a new one replaces, so that a step holds each parameter once.
void free_replaced(const Batch& batch, const std::vector<ir::Donation>& donations) {
  for (const ir::Donation& donation : donations)
    if (!batch.outputs()[donation.result]->error) batch.leaves()[donation.input]->tensor.reset();
}

/// Runs the batch's operations one by one. If an operation raises an error, its results hold the error, for whoever
/// reads them.
void run_one_by_one(Batch& batch) {
  const auto donations = batch.donations_by_end();
  for (size_t i = 0; i < batch.nodes().size(); ++i) {
    const Node& node = *batch.nodes()[i];
    try {
      run_node(node, batch.results(i));
    } catch (const c10::OutOfMemoryError&) {
      throw;  // what has not run stays pending
    } catch (const std::exception&) {
      if (is_interruption(std::current_exception())) throw;
      for (const ValueRef& result : batch.results(i))
        if (result) set_error(*result, std::current_exception());
    }
    batch.done(i);
    free_replaced(batch, donations[i]);
  }
  keep_replaced(batch);
}

void run_batch(Batch& batch) {
  if (batch.nodes().empty()) return;
  const record::Aside aside;
  if (batch.failed() == nullptr) {
    if (auto found = find_program(batch)) {
      try {
        auto results = torch_operator::call_cpu(*found->program, found->inputs, torch_operator::Donated::kTaken);
        for (size_t i = 0; i < results.size(); ++i) {
          Value& value = *batch.outputs()[i];
          set_tensor(value, results[i].to(value.dtype));  // the program computes some statistics in float32
        }
        return;
      } catch (const c10::OutOfMemoryError&) {
        throw;
      } catch (const std::exception&) {
        if (is_interruption(std::current_exception())) throw;
        // An index out of range, for example. Running one by one shows which operation raises it. No donated memory has
        // been written yet (planning/fusion/donations.h).
      }
    }
  }
  run_one_by_one(batch);
}

void run_pending(const Value* also) {
  {
    const torch_operator::WarningsWait wait;
    Watching watching;
    Turn turn;
    run_state.bytes = 0;
    Batch batch(pending_of_this_thread(also));
    watching.take(batch);
    run_batch(batch);
  }
  torch_operator::deliver_warnings();
}

bool are_few_integers(at::ScalarType dtype, at::IntArrayRef sizes) {
  constexpr int64_t kMost = 1 << 12;
  return c10::isIntegralType(dtype, true) && c10::multiply_integers(sizes) <= kMost;
}

/// The operations that a pending value follows from, if these are few and have only few integers as operands and
/// results: arithmetic of lengths, indices and masks. Empty otherwise.
std::vector<const Node*> integer_arithmetic(const Value& value) {
  constexpr size_t kMostOperations = 16;
  std::vector<const Node*> nodes{value.maker.get()};
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const auto& result : nodes[i]->results())
      if (!are_few_integers(result.dtype, result.sizes)) return {};
    for (const ValueRef& operand : nodes[i]->operands) {
      if (!are_few_integers(operand->dtype, operand->sizes)) return {};
      const Node* maker = operand->maker.get();
      if (maker == nullptr || std::ranges::find(nodes, maker) != nodes.end()) continue;
      if (nodes.size() == kMostOperations) return {};
      nodes.push_back(maker);
    }
  }
  return nodes;
}

/// Runs the operations from which a pending value of integers is computed, if these are few, and leaves all other
/// operations pending. So a step that asks for the lengths of its sequences stays one batch. Returns whether it ran
/// operations: it runs none if no others are pending.
bool run_integers_ahead(const Value& value) {
  const torch_operator::WarningsWait wait;
  const Turn turn;
  if (!value.maker) return false;
  const std::vector<const Node*> nodes = integer_arithmetic(value);
  if (nodes.empty()) return false;
  std::vector<ValueRef> outputs = pending_of_this_thread(&value);
  const auto stays = [&](const ValueRef& each) { return std::ranges::find(nodes, each->maker.get()) == nodes.end(); };
  if (std::erase_if(outputs, stays) == 0) return false;
  Batch batch(std::move(outputs));
  const record::Aside aside;
  run_one_by_one(batch);
  return true;
}

}  // namespace

void sync() { run_pending(nullptr); }

at::Tensor computed(const ValueRef& value) {
  if (is_pending(*value)) {
    hold(*value);
    try {
      if (!run_integers_ahead(*value)) run_pending(value.get());
    } catch (...) {
      release(*value);
      throw;
    }
    release(*value);
  }
  if (value->error) std::rethrow_exception(value->error);
  return value->tensor;
}

void cut_if_long() {
  if (is_running || (pending_nodes() < run_state.longest && run_state.bytes < kMostPendingBytes)) return;
  const Asking asking("long");
  sync();
}

void count_bytes(size_t bytes) { run_state.bytes += bytes; }

void set_longest_record(int64_t operations) { run_state.longest = operations; }

}  // namespace weft::device
