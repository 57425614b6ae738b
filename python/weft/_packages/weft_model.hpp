// The interface of weft_model.h for C++17: states that own their memory.
#ifndef WEFT_MODEL_HPP
#define WEFT_MODEL_HPP

#include <cstring>
#include <new>
#include <utility>

#include "weft_model.h"

namespace weft {

/// The memory of a state. Made where allocation is allowed; steps allocate nothing. `ok()` is false where there was no
/// memory, or the model has another ABI.
class State {
 public:
  explicit State(const weft_model* model) noexcept : model_(model) {
    if (model == nullptr || model->abi != WEFT_MODEL_ABI) return;
    memory_ = ::operator new(model->state_bytes, std::align_val_t(model->state_align), std::nothrow);
    if (memory_ != nullptr) model->reset(memory_);
  }
  State(const State& other) noexcept : State(other.model_) { *this = other; }
  State(State&& other) noexcept : model_(other.model_), memory_(std::exchange(other.memory_, nullptr)) {}
  /// Of a state of the same model; others leave it as it is.
  State& operator=(const State& other) noexcept {
    if (this != &other && ok() && other.ok() && model_ == other.model_)
      std::memcpy(memory_, other.memory_, model_->state_bytes);
    return *this;
  }
  State& operator=(State&& other) noexcept {
    std::swap(model_, other.model_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~State() {
    if (memory_ != nullptr) ::operator delete(memory_, std::align_val_t(model_->state_align));
  }

  bool ok() const noexcept { return memory_ != nullptr; }
  void* data() noexcept { return memory_; }
  const weft_model* model() const noexcept { return model_; }

  int reset() noexcept { return ok() ? model_->reset(memory_) : WEFT_NO_MEMORY; }
  int step(const void* const* inputs, void* const* outputs) noexcept {
    return ok() ? model_->step(memory_, inputs, outputs) : WEFT_NO_MEMORY;
  }
  int run(const void* const* inputs, void* const* outputs, std::size_t steps) noexcept {
    return ok() ? model_->run(memory_, inputs, outputs, steps) : WEFT_NO_MEMORY;
  }
  int save(void* saved) const noexcept { return ok() ? model_->save(memory_, saved) : WEFT_NO_MEMORY; }
  int restore(const void* saved, std::size_t bytes) noexcept {
    return ok() ? model_->restore(memory_, saved, bytes) : WEFT_NO_MEMORY;
  }

 private:
  const weft_model* model_;
  void* memory_ = nullptr;
};

}  // namespace weft

#endif
