#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "jit/jit.h"
#include "packages/step_model.h"

namespace weft::resident {

/// weft_tensor and weft_model of weft_model.h, as machine code has them.
struct Tensor {
  const char* name;
  int32_t dtype;
  uint32_t rank;
  const int64_t* sizes;
  size_t bytes;
};
struct Model {
  uint32_t abi, input_count, output_count, state_count;
  const char *name, *target;
  uint64_t fingerprint;
  const Tensor *inputs, *outputs, *states;
  size_t state_bytes, state_align, saved_bytes;
  int (*reset)(void* state);
  int (*step)(void* state, const void* const* inputs, void* const* outputs);
  int (*run)(void* state, const void* const* inputs, void* const* outputs, size_t steps);
  int (*save)(const void* state, void* saved);
  int (*restore)(void* state, const void* saved, size_t bytes);
};

/// A package's step as machine code of this process. A package of the same step for target() has an object with the
/// same machine code, and so gives the same bits. Any number of threads may use a Step, each with states of its own.
class Step {
 public:
  /// Compiles the step for target_here(), or takes it from the object cache. Where the function for several steps at
  /// once takes most of the time, it is compiled in the background, and joins the others when it is ready. Equal steps
  /// share their machine code. User's error for what has no form in a package.
  static std::shared_ptr<const Step> make(packages::StepModel model);

  const Model& model() const { return *model_.load(std::memory_order_acquire); }
  std::string target() const { return model().target; }
  bool is_from_cache() const { return from_cache_; }
  /// Whether a step can fail: by an index outside its table, or an integer divided by 0.
  bool may_fail() const { return may_fail_; }
  /// Waits until no function of the step is being compiled in the background.
  void wait() const;

 private:
  explicit Step(bool may_fail) : may_fail_(may_fail) {}
  void prepare(const std::shared_ptr<Step>& self, const std::shared_ptr<const packages::StepModel>& model,
               const std::string& key);
  void link(const std::string& name, std::string object, std::unique_ptr<jit::Code>& code);
  void finish(const packages::StepModel& model, const std::string& key);

  std::unique_ptr<jit::Code> first_, whole_;
  std::atomic<const Model*> model_ = nullptr;
  std::atomic<bool> is_whole_ = false;
  bool from_cache_ = false, may_fail_;
};

/// The state of a step in memory of its own, used by one thread at a time.
class State {
 public:
  /// Before the first step.
  explicit State(std::shared_ptr<const Step> step);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// One step on dense tensors. False where it failed; then the state is as before, and outputs hold anything.
  bool run(const void* const* inputs, void* const* outputs);
  /// Runs `steps` steps on stacks [steps, ...]. Returns how many steps were done before one failed: all if none did.
  size_t run(const void* const* inputs, void* const* outputs, size_t steps);
  /// The states' tensors, dense and in order, each from a multiple of 8 bytes on; as many bytes as `restore` takes.
  void save(std::span<std::byte> saved) const;
  void restore(std::span<std::byte> saved);
  size_t saved_bytes() const { return step_->model().saved_bytes; }
  /// Where the first tensor stands among the saved bytes.
  static constexpr size_t kSavedHeader = 8;

 private:
  struct Free {
    size_t align;
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t(align)); }
  };
  size_t run_one_by_one(const void* const* inputs, void* const* outputs, size_t steps);

  std::shared_ptr<const Step> step_;
  std::unique_ptr<std::byte, Free> memory_;
};

/// The best package target for the instruction set in use (runtime::active_isa), on this processor. User's error where
/// packages have no target for it.
std::string target_here();

}  // namespace weft::resident
