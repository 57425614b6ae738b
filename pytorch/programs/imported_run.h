#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "operator/program_table.h"
#include "programs/gradient_match.h"
#include "record/recording.h"

namespace weft::programs {

/// Thrown when the function changes views of its own tensors in place. Only a replay under functionalisation can
/// express that.
struct NeedsFunctionalError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Callbacks for what only Python knows.
struct Callbacks {
  /// The operation's results by PyTorch's decompositions in Python, whose operations are recorded as they are called;
  /// nullopt if there is no decomposition.
  std::function<std::optional<torch::jit::Stack>(const c10::OperatorHandle&, const torch::jit::Stack&)> decompose;
  /// The program of a derivative that the run recorded. `payload` names the derivative; `like` are tensors like its
  /// inputs and values.
  std::function<torch_operator::ProgramRef(size_t payload, const std::vector<at::Tensor>& like)> derivative;
};

/// Replays a recorded run in operations that a program has. An operation that the IR lacks is decomposed
/// (pytorch/decompose, then PyTorch's own decompositions). An operation in place becomes its variant out of place.
///
/// The replay has the gradients of the record. A value that an operation read without a gradient goes through
/// weft::stop_gradient. A value with a hook has the hook for its derivative. GradientMatch proves the rest.
class ImportedRun : private record::Interceptor {
 public:
  /// How operations are replayed.
  struct Way {
    bool functional = false;           ///< under functionalisation, which follows changes of views
    std::set<std::string> whole = {};  ///< operations that stay whole, as PyTorch prints them, and run in PyTorch
  };

  /// `free`: the numbers of the run that become inputs (as double[]), by their words in its record.
  ///
  /// Throws NeedsFunctionalError; record::UnsupportedError for an operation that no program can express.
  ImportedRun(record::Recording& source, std::vector<size_t> free, const Way& way, Callbacks callbacks);

  const record::Recording& source() const { return source_; }
  record::Recording& flat() { return flat_; }
  const record::Recording& flat() const { return flat_; }
  /// The number of the run's inputs, which are the first values. The tensors from outside follow, then the free
  /// numbers.
  int64_t inputs() const { return inputs_; }
  int64_t captured() const { return flat_.inputs() - inputs_; }
  /// The name of the operation whose decomposition contains this one; empty for a recorded operation.
  std::string decomposed_at(size_t operation) const;
  /// The number of the recorded operation that this one belongs to.
  size_t source_of(size_t operation) const;
  /// Whether autograd would ask for the derivative of this value.
  bool requires_gradient(int64_t value) const { return requires_gradient_.contains(value); }

 private:
  /// An argument's part in its operation: only read, returned as a view, changed, overwritten as a whole, or (kHidden)
  /// left out of the derivative, which goes by another argument.
  enum class Role { kRead, kShown, kChanged, kOverwritten, kHidden };

  bool intercept(const c10::OperatorHandle& op, torch::jit::Stack& stack) override;
  bool has_gradients() const override;
  bool draw(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void in_place(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  bool decompose(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void check_first(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results);

  void add_inputs();
  void replay();
  void replay(const record::Operation& operation);
  void replay_derived(const record::Operation& operation);
  static Role role_of(const c10::OperatorHandle& op, size_t argument);
  at::Tensor read(int64_t id);
  at::Tensor without_gradient(int64_t id, const at::Tensor& tensor);
  at::Tensor leaf(int64_t id, const record::GradientUse& use);
  at::Tensor refusing(int64_t id, const record::GradientUse& use, const torch::autograd::Error& error);
  at::Tensor with_gradient(int64_t id, const record::GradientUse& use);
  at::Tensor with_hook(int64_t id, const record::Hook& hook);
  std::vector<at::Tensor> derived(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values,
                                  std::string vjp);
  torch_operator::ProgramRef derivative(size_t payload, const std::vector<at::Tensor>& inputs,
                                        const std::vector<at::Tensor>& values);
  [[noreturn]] void rethrow(std::exception_ptr error);
  c10::IValue given(const c10::IValue& argument);
  at::Tensor value(int64_t id) const;
  void keep(int64_t id, const at::Tensor& tensor);
  at::Tensor wrapped(const at::Tensor& tensor) const;
  at::Tensor unwrapped(const at::Tensor& tensor) const;

  record::Recording& source_;
  std::vector<size_t> free_;
  bool functional_, needs_functional_ = false;
  std::set<std::string> whole_;
  Callbacks callbacks_;
  record::Recording flat_;
  GradientMatch match_;
  std::vector<size_t> ends_;  ///< by replayed operation: the number of operations in the flat record behind it
  size_t operation_ = 0;      ///< the recorded operation that is being replayed,
  size_t next_use_ = 0;       ///< and the place of its next tensor among the source's uses
  Role role_ = Role::kRead;
  bool is_varied_ = false;    ///< whether the operation has read something that a program derives
  std::set<int64_t> varied_;  ///< the source's storages that hold values which a program derives
  std::map<record::GradientUse, at::Tensor> leaves_;  ///< by edge: a leaf of the function's own, or an error
  std::vector<at::Tensor> values_;                    ///< by value of the source
  std::vector<at::Tensor> captured_;                  ///< the tensors from outside, then the free numbers
  std::set<size_t> taken_;                            ///< the free numbers that operations have read
  std::set<int64_t> requires_gradient_;
  std::set<std::string> decomposing_;  ///< at the moment; PyTorch's decompositions may come back to an operation
  /// A decomposed operation, with the range of the operations that it was decomposed into. In order.
  struct Decomposed {
    std::string name;
    size_t first, end;
  };
  std::vector<Decomposed> decomposed_;
  int64_t inputs_ = 0;
};

/// What the replay leaves out in a test, which must be noticed: stops of gradients, or hooks.
enum class GradientFault { kNone, kStops, kHooks };
void inject(GradientFault fault);

/// The tensors of results, a list's tensors in a row; undefined for a result that is no tensor.
std::vector<at::Tensor> tensors_of(const torch::jit::Stack& stack);

/// "aten.add.Tensor", as PyTorch prints it.
std::string printed_name(const c10::OperatorName& name);

}  // namespace weft::programs
