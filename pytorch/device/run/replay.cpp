#include "device/run/replay.h"

#include "device/kernels/operators.h"
#include "device/run/program_argument.h"
#include "programs/program_of_runs.h"

namespace weft::device {

using c10::IValue;
using record::Record;
using record::Recording;
using Slot = Operator::Slot;

torch::jit::Stack stack_of(const Node& node, const std::vector<IValue>& arguments,
                           const std::function<at::Tensor(const Value&)>& tensor_of) {
  auto operand = [&](int64_t number) { return tensor_of(*node.operands[static_cast<size_t>(number)]); };
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  const auto& parameters = node.op().schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const IValue& argument = arguments[i];
    if (node.op().slots[i] == Slot::kProgram) {
      stack.emplace_back(program_argument(argument).program->text());
    } else if (node.op().slots[i] == Slot::kTensor && argument.isInt()) {
      stack.emplace_back(operand(argument.toInt()));
    } else if (node.op().slots[i] == Slot::kTensors && argument.isIntList()) {
      auto list = parameters[i].real_type();
      if (auto optional = list->cast<c10::OptionalType>()) list = optional->getElementType();
      if (list->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType) {
        std::vector<at::Tensor> tensors;
        for (int64_t each : argument.toIntVector()) tensors.push_back(operand(each));
        stack.emplace_back(std::move(tensors));
      } else {
        c10::List<std::optional<at::Tensor>> tensors;
        for (int64_t each : argument.toIntVector())
          tensors.push_back(each >= 0 ? std::optional(operand(each)) : std::nullopt);
        stack.emplace_back(std::move(tensors));
      }
    } else {
      stack.push_back(argument);
    }
  }
  return stack;
}

std::vector<at::Tensor> results_of(const Node& node, torch::jit::Stack stack,
                                   const std::function<void(torch::jit::Stack&)>& call) {
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!node.op().traits.writes[i] || !stack[i].isTensor()) continue;
    stack[i] = stack[i].toTensor().clone();
    written.push_back(stack[i].toTensor());
  }
  call(stack);
  torch::jit::Stack own;
  for (size_t i = 0; i < stack.size(); ++i)
    if (!node.op().traits.returns[i].is_argument) own.push_back(std::move(stack[i]));
  std::vector<at::Tensor> results = programs::tensors_of(own);
  results.insert(results.end(), written.begin(), written.end());
  return results;
}

namespace {

/// Repeats the batch's operations while `recording` is current.
class Replay {
 public:
  /// `sized`: the batch at other sizes; null for its own.
  Replay(const Batch& batch, const Sized* sized, Recording& recording)
      : batch_(batch), sized_(sized), recording_(recording), values_(batch.nodes().size()) {
    for (size_t i = 0; i < batch.leaves().size(); ++i) {
      const Value& leaf = *batch.leaves()[i];
      leaves_.push_back(recording.input(leaf.dtype, sized != nullptr ? sized->leaves[i] : leaf.sizes, false));
    }
  }

  std::vector<at::Tensor> run() {
    for (size_t i = 0; i < batch_.nodes().size(); ++i) {
      first_words_.push_back(recording_.record().words().size());
      run(i);
    }
    first_words_.push_back(recording_.record().words().size());
    std::vector<at::Tensor> outputs;
    for (const ValueRef& output : batch_.outputs()) outputs.push_back(tensor_of(*output));
    return outputs;
  }

  /// By node: the first word of what it recorded; then where the last node's words end.
  const std::vector<size_t>& first_words() const { return first_words_; }

 private:
  at::Tensor tensor_of(const Value& value) const {
    const int64_t place = batch_.place(value);
    return place < 0 ? leaves_[static_cast<size_t>(-1 - place)] : values_[static_cast<size_t>(place)][value.result];
  }

  void run(size_t i) {
    const Node& node = *batch_.nodes()[i];
    torch::jit::Stack stack = stack_of(node, sized_ != nullptr ? sized_->arguments[i] : node.arguments(),
                                       [&](const Value& value) { return tensor_of(value); });
    values_[i] = results_of(node, std::move(stack), [&](auto& arguments) { node.op().handle.callBoxed(&arguments); });
    check_sizes(i);
  }

  void check_sizes(size_t i) const {
    if (sized_ == nullptr) return;
    for (size_t n = 0; n < sized_->results[i].size(); ++n)
      if (values_[i].at(n).defined() && values_[i][n].sizes() != at::IntArrayRef(sized_->results[i][n]))
        throw programs::Mismatch();
  }

  const Batch& batch_;
  const Sized* sized_;
  Recording& recording_;
  std::vector<at::Tensor> leaves_;
  std::vector<std::vector<at::Tensor>> values_;
  std::vector<size_t> first_words_;
};

/// While it lives, `recording` records this thread's operations.
struct Entered {
  explicit Entered(Recording& recording) : recording(recording) { recording.enter(); }
  ~Entered() { recording.leave(); }
  Recording& recording;
};

/// One recording of the batch: at the batch's own sizes, or at other sizes.
struct Run {
  Run(const Batch& batch, const Sized* sized) {
    Entered entered(recording);
    Replay replay(batch, sized, recording);
    recording.finish(replay.run(), std::nullopt);
    first_words = replay.first_words();
  }
  Recording recording;
  std::vector<size_t> first_words;
};

/// The words of the run's record that are these numbers of the batch. Refuses numbers of a composite operation: in the
/// run the operation has become others, whose numbers are computed from its own.
std::vector<size_t> words_of(const std::vector<NumberPlace>& numbers, const Batch& batch, const Run& run) {
  const auto& kinds = run.recording.record().kinds();
  std::vector<size_t> words;
  for (const auto& [node, ordinal, count] : numbers) {
    std::vector<size_t> found;
    for (size_t i = run.first_words[node]; i < run.first_words[node + 1]; ++i)
      if (kinds[i] == Record::Kind::kNumber) found.push_back(i);
    const c10::OperatorHandle& op = batch.nodes()[node]->op().handle;
    if (found.size() != count || op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
      throw record::UnsupportedError(op.schema().name() + ": a number that differs from call to call");
    words.push_back(found[ordinal]);
  }
  return words;
}

}  // namespace

ReplayedProgram replayed_program(const Batch& batch, const std::vector<NumberPlace>& free, const Decompose& decompose,
                                 const Samples* samples) {
  at::AutoGradMode no_grad(false);
  std::vector<std::unique_ptr<Run>> runs;
  if (samples != nullptr) {
    for (const auto* words : {&samples->first, &samples->second}) {
      const Sized sized = at_sizes(batch, *words);
      runs.push_back(std::make_unique<Run>(batch, &sized));
    }
  }
  runs.push_back(std::make_unique<Run>(batch, nullptr));
  std::vector<programs::SourceRun> sources;
  for (const auto& run : runs) sources.push_back({&run->recording, words_of(free, batch, *run), {decompose, nullptr}});
  programs::RunsProgram program = programs::program_of_runs(
      sources, samples != nullptr ? samples->fit : record::SizeFit({}, {}, false),
      [](const programs::ExternOperation&) { return nullptr; }, programs::Whole::kWhereSizesDecide);
  if (!program.noise.empty()) throw record::UnsupportedError("random numbers in a batch");
  return {std::move(program.program), std::move(program.constants)};
}

}  // namespace weft::device
