#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "operator/aten.h"
#include "record/errors.h"
#include "record/gradient_graph.h"
#include "record/meta/result_shapes.h"
#include "record/record.h"
#include "record/recording_tensor.h"

namespace weft::record {

/// A recorded operation, as it was called.
struct Operation {
  std::optional<c10::OperatorHandle> op;  ///< none for derived()
  size_t arguments;                       ///< the place of the first in Recording::arguments()
  size_t first_word, end_word;            ///< the range of its words in the record
  bool grad_mode;
  std::vector<int64_t> results;  ///< value ids; a changed argument keeps its own id; -1 for what is no tensor
  size_t first_use;              ///< the place of its first tensor's use in Recording::uses(); only in grad mode
  size_t payload = 0;            ///< of derived(): the caller's number of the derivative
  std::string vjp = {};          ///< of derived(): the derivative's program, where it is known,
  bool refuses = false;          ///< whether `vjp` is the message of an error instead of a program
  bool is_hook = false;          ///< whether it stands for a hook on the first input
  bool derivable = true;         ///< whether the derivative may be derived again
};

/// What a hook does to the gradient of a value inside the function. The hook is stored like the backward of a Function
/// in derived().
struct Hook {
  GradientUse of;
  std::vector<int64_t> inputs;  ///< ids of the values that it reads besides the gradient
  size_t payload;
  bool derivable;  ///< false if the hook also gets second derivatives of the operation that made the value
};

/// Sees every operation before it is recorded.
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  /// Either replaces the operation's arguments on the stack by its results, as its kernel would, or returns false. Then
  /// the operation is recorded unchanged.
  virtual bool intercept(const c10::OperatorHandle& op, torch::jit::Stack& stack) = 0;
  /// Whether operations that are recorded now have gradients.
  virtual bool has_gradients() const = 0;
};

/// A recording of Python code that runs on tensors without data. Operations on these tensors are written down.
///
/// Between enter() and leave() all operations of this thread are recorded, whatever tensors they take. Recordings nest:
/// the tensors of an outer recording are tensors from outside to the inner one. A recorded tensor (recording_tensor.h)
/// says that it is a dense tensor on the CPU. Shapes come from the operations' Meta kernels (result_shapes.h).
class Recording {
 public:
  /// `is_alone`: PyTorch isn't there when the program runs.
  explicit Recording(bool is_alone = false);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void enter();
  void leave();
  static Recording* current();
  /// Whether this thread's recording, or one around it, is of a program that runs without PyTorch.
  static bool is_alone();
  /// Stops recording this thread's operations, until `resume` is called with the result.
  static Recording* suspend();
  static void resume(Recording* recording);

  /// An input of the function. `has_history`: the caller's tensor may depend on tensors from outside that require a
  /// gradient.
  at::Tensor input(at::ScalarType dtype, at::IntArrayRef sizes, bool requires_grad, bool has_history = true);
  /// An input like a tensor, with its sizes from `first_dim` on. With `needs_gradient` it requires a gradient if it is
  /// floating. `is_carry`: the step before may have computed it.
  at::Tensor input_like(const at::Tensor& like, size_t first_dim, bool needs_gradient, bool is_carry = false);
  /// A stand-in with these sizes, which the function sees in place of a tensor from outside.
  at::Tensor stand_in(const at::Tensor& tensor, at::IntArrayRef sizes);
  /// Completes the record with the function's outputs, as id() numbers them. The first outputs are the next values of
  /// the first `carries` inputs. `carries` is none where the function gets the caller's own tensors instead of carries
  /// and slices. Throws UnsupportedError for hooks that were not given to `hooked`, and where the function did
  /// something to its arguments that a caller would see.
  void finish(const std::vector<at::Tensor>& outputs, std::optional<size_t> carries);
  /// The outputs of a torch.autograd.Function. Their values are `values`, and `part` records their derivative. For a
  /// backward within the function, `backward` computes it.
  std::vector<at::Tensor> derived(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values,
                                  const Record& part, size_t payload, DerivedNode::Backward backward);
  /// The nodes with hooks that gradients of the outputs pass.
  std::vector<c10::intrusive_ptr<Node>> nodes_with_hooks(const std::vector<at::Tensor>& outputs);
  GradientUse use_of(const c10::intrusive_ptr<Node>& node, uint32_t output) { return {graph_.add(node), output}; }
  /// Records the hooks on an output of a node. `part` is their record; `inputs` are what they read besides the
  /// gradient.
  void hooked(const GradientUse& of, const std::vector<at::Tensor>& inputs, const Record& part, size_t payload,
              bool derivable);
  /// Throws UnsupportedError if a backward from `outputs` within the function would reach beyond the function's
  /// arguments, or add to .grad of a tensor from outside. A recording can't express effects of a backward outside of
  /// the function.
  void refuse_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, bool accumulates);
  /// Whether the tensor comes from outside, or is a stand-in for such a tensor.
  bool is_from_outside(const at::Tensor& tensor) const { return own(tensor) == nullptr; }
  /// Calls `look` when the function is about to do the operation of this number.
  void look_at(size_t operation, std::function<void()> look) { looked_at_ = operation, look_ = std::move(look); }

  /// Says that `copy`, just made, stands for a view of `base` whose place depends on values. The function is refused
  /// where the difference would show: where it changes the copy, or reads the copy after a change of the base.
  void show_as_view(const at::Tensor& base, const at::Tensor& copy);

  // ---- for runs that are imported

  /// Sets the outputs, in place of `finish`: the record is not asked for, and nothing is checked.
  void set_outputs(const std::vector<at::Tensor>& outputs);
  /// The outputs of a function whose derivative is the program `vjp`.
  std::vector<at::Tensor> derived(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values,
                                  std::string vjp);
  /// The tensor with an error in place of its derivative.
  at::Tensor refusing(const at::Tensor& tensor, const std::string& message);
  Operation& last_operation() { return operations_.back(); }
  /// Connects results of derived() with the inputs by the node that passes their gradients on. derived() itself does so
  /// for the tensors that it returns.
  static void set_history(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs,
                          DerivedNode::Backward backward);

  void set_interceptor(Interceptor* interceptor) { interceptor_ = interceptor; }
  /// Whether the recording is of a replay, whose operations are decomposed.
  bool is_import() const { return interceptor_ != nullptr; }
  /// A value's dtype and sizes when it was made; only with an interceptor.
  struct Meta {
    at::ScalarType dtype;
    std::vector<int64_t> sizes;
  };
  const std::vector<Meta>& metas() const { return metas_; }
  /// Whether another tensor of the recording shares, or has shared, this one's memory; only with an interceptor.
  bool shares_memory(const at::Tensor& tensor) const;
  /// Makes the tensor stand for the value of `result` from here on, as it does after an operation in place.
  void rebind(const at::Tensor& tensor, const at::Tensor& result);

  // ----

  /// The number of tensors of the recording that are still held. Frees the data for replays.
  size_t leaks();
  /// The tensors that leaks() counts.
  std::vector<at::Tensor> kept() const;

  const Record& record() const { return record_; }
  const std::vector<at::Tensor>& outside() const { return outside_; }
  /// Dtypes and sizes of the inputs.
  std::vector<std::pair<at::ScalarType, std::vector<int64_t>>> input_types() const;
  /// The sizes of the tensors from outside, as the function sees them.
  std::vector<std::vector<int64_t>> outside_sizes() const;
  const std::vector<Operation>& operations() const { return operations_; }
  const std::vector<c10::IValue>& arguments() const { return arguments_; }
  const std::vector<int64_t>& outputs() const { return outputs_; }
  const std::vector<GradientUse>& uses() const { return uses_; }
  const std::vector<GradientUse>& output_uses() const { return output_uses_; }
  const std::vector<Hook>& hooks() const { return hooks_; }
  /// Whether an operation ran without grad mode.
  bool stops_gradients() const;
  const GradientGraph& graph() const { return graph_; }
  /// Equal for values that share memory.
  int64_t storage(int64_t value) const { return storages_.at(static_cast<size_t>(value)); }
  /// Whether the operation with this number, or a later one, changes the value's memory.
  bool is_changed_from(size_t operation, int64_t value) const;
  int64_t inputs() const { return inputs_; }
  /// The tensor from outside with this index, as the function sees it.
  at::Tensor shown(size_t outside) const;
  /// The number of a value: inputs and results count from 0; -1 - i is the i-th tensor from outside; nullopt for a
  /// tensor that stands for a number.
  std::optional<int64_t> id(const at::Tensor& tensor);

  /// The error for which the recording can't be used, whether or not the function caught it.
  struct Failure {
    enum Kind { kReadsValue, kMutates, kUnsupported, kUnrecordable } kind;
    std::string reason;
    at::Tensor changed;
  };
  const std::optional<Failure>& failure() const { return failure_; }

  /// The boxed kernel of every operation while a recording is current.
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

 private:
  struct Call;  // an operation that is being recorded
  class ArgumentWriter;

  void record(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  at::Tensor make(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t storage);
  int64_t outside_index(const at::Tensor& tensor);
  /// The tensor as a value of this recording; nullptr if it comes from outside or is a stand-in.
  RecordingTensor* own(const at::Tensor& tensor) const;
  c10::IValue as_it_is(const c10::IValue& argument) const;
  void refuse_mutation(Call& call);
  void refuse_stale(const RecordingTensor& value) const;
  bool requires_gradient(int64_t storage) const;
  bool may_be_saved(int64_t storage) const;
  void walk(const std::vector<at::Tensor>& outputs);
  void refuse_effects_on_inputs(const std::vector<at::Tensor>& outputs, std::optional<size_t> carries) const;
  void refuse_hooks_on_carries(const std::vector<at::Tensor>& outputs, std::optional<size_t> carries) const;
  void write_tensor(const at::Tensor& tensor);
  void write_use(const at::Tensor& tensor, RecordingTensor* value);
  void push_results(Call& call, torch::jit::Stack& stack);
  std::shared_ptr<const ResultShapes> shapes_of(const Call& call);
  at::Tensor push_result(Call& call, const ResultShape& shape, int64_t storage);
  void run_now(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  at::Tensor evaluate(const at::Tensor& tensor);
  at::Tensor evaluate(int64_t id);

  std::unordered_map<const c10::TensorImpl*, at::Tensor> stand_ins_;
  Record record_;
  std::vector<Operation> operations_;
  std::vector<c10::IValue> arguments_;
  std::vector<at::Tensor> outside_;
  std::unordered_map<const c10::TensorImpl*, int64_t> outside_index_;
  std::vector<int64_t> outputs_;
  std::vector<GradientUse> uses_;         ///< of the tensors read in grad mode, in order
  std::vector<GradientUse> output_uses_;  ///< of the outputs
  std::vector<Hook> hooks_;
  GradientGraph graph_;
  std::vector<int64_t> storages_;   ///< by value
  std::vector<bool> have_history_;  ///< by input
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> made_;
  std::unordered_map<int64_t, size_t> changed_;      ///< by changed storage: the last operation that changed it
  std::vector<size_t> makers_;                       ///< by value: the operation that made it
  std::vector<std::pair<int64_t, int64_t>> copies_;  ///< for show_as_view: the storages of base and copy, in order
  std::unordered_set<int64_t> stale_;                ///< storages of copies whose bases have changed
  int64_t inputs_ = 0, values_ = 0;
  uint64_t serial_;
  std::optional<Failure> failure_;
  Interceptor* interceptor_ = nullptr;
  size_t looked_at_ = SIZE_MAX;
  std::function<void()> look_;
  std::vector<Meta> metas_;                   ///< by value
  std::unordered_map<int64_t, int> sharers_;  ///< by storage: how many values were made in it
  bool is_alone_;
  Recording* before_ = nullptr;
  bool entered_ = false, saw_hooks_ = false;
  bool replayed_views_ = false;     ///< before the recording: whether autograd made views of a changed base again by
                                    ///< the operations that had made them
  bool leaves_out_select_ = false;  ///< while suspended: whether BackendSelect was left out
};

}  // namespace weft::record
