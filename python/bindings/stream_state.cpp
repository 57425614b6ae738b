#include "bindings/stream_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <cstring>

#include "operator/call.h"

namespace weft::bindings {
namespace {

/// A history of fewer bytes isn't worth it: copying the state costs no more.
constexpr int64_t kLeastBytes = 4096;

}  // namespace

StreamState::StreamState(const Program& step, std::vector<at::Tensor> states, std::vector<at::Tensor> constants)
    : constants_(std::move(constants)), states_(std::move(states)), buffers_(states_.size()) {
  const at::NoGradGuard no_gradients;
  bool on_cpu = true;
  for (at::Tensor& state : states_) {
    state = state.contiguous();
    on_cpu = on_cpu && state.device().is_cpu();
  }
  if (!on_cpu) {
    step_ = step.called();
    return;
  }
  const streaming::StepWithHistories made = streaming::with_histories(*step, states_.size(), kLeastBytes);
  bool any = false;
  for (size_t i = 0; i < states_.size(); ++i)
    if (made.histories[i]) {
      keep(i, *made.histories[i]);
      any = true;
    }
  step_ = any ? Program(made.step).called() : step.called();
}

void StreamState::keep(size_t state, const streaming::History& history) {
  const at::Tensor before = states_[state];
  const auto dim = static_cast<int64_t>(history.dim);
  std::vector<int64_t> sizes = before.sizes().vec();
  Buffer buffer;
  buffer.rows = history.rows;
  buffer.fresh = history.fresh;
  buffer.row_elements = before.numel() / history.rows;
  sizes[history.dim] = 2 * history.rows;
  buffer.all = at::empty(sizes, before.options());
  states_[state] = buffer.all.narrow(dim, 0, history.rows);
  states_[state].copy_(before);
  buffers_[state] = std::move(buffer);
}

void StreamState::add(size_t state, const at::Tensor& fresh) {
  Buffer& buffer = *buffers_[state];
  const auto row_bytes = static_cast<size_t>(buffer.row_elements) * buffer.all.element_size();
  auto* data = static_cast<std::byte*>(buffer.all.mutable_data_ptr());
  const auto at = [&](int64_t row) { return data + static_cast<size_t>(row) * row_bytes; };
  const int64_t left = buffer.rows - buffer.fresh;
  int64_t first = buffer.first + buffer.fresh;
  if (first + buffer.rows > 2 * buffer.rows) {
    std::memmove(at(0), at(first), static_cast<size_t>(left) * row_bytes);
    first = 0;
  }
  const at::Tensor dense = fresh.contiguous();
  std::memcpy(at(first + left), dense.const_data_ptr(), static_cast<size_t>(buffer.fresh) * row_bytes);
  buffer.first = first;
  states_[state].unsafeGetTensorImpl()->set_storage_offset(first * buffer.row_elements);
}

void StreamState::set(const std::vector<at::Tensor>& states) {
  check(states.size() == states_.size(), "a stream has {} states, not {}", states_.size(), states.size());
  const at::NoGradGuard no_gradients;
  for (size_t i = 0; i < states.size(); ++i) {
    if (!buffers_[i]) {
      states_[i] = states[i].contiguous();
      continue;
    }
    buffers_[i]->first = 0;
    states_[i].unsafeGetTensorImpl()->set_storage_offset(0);
    states_[i].copy_(states[i]);
  }
}

std::vector<at::Tensor> StreamState::get() const {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& state : states_) copies.push_back(state.clone());
  return copies;
}

std::vector<at::Tensor> StreamState::run_chunk(const std::vector<at::Tensor>& inputs) {
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> given = states_;
  given.insert(given.end(), inputs.begin(), inputs.end());
  given.insert(given.end(), constants_.begin(), constants_.end());
  std::vector<at::Tensor> results = torch_operator::call(step_, given);
  for (size_t i = 0; i < states_.size(); ++i) {
    if (buffers_[i])
      add(i, results[i]);
    else
      states_[i] = std::move(results[i]);
  }
  results.erase(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(states_.size()));
  return results;
}

std::vector<at::Tensor> StreamState::run_chunks(const std::vector<std::pair<at::Tensor, bool>>& inputs,
                                                int64_t chunks) {
  const at::NoGradGuard no_gradients;
  std::vector<std::vector<at::Tensor>> outputs;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    std::vector<at::Tensor> given;
    for (const auto& [input, is_stack] : inputs) given.push_back(is_stack ? input.select(0, chunk) : input);
    std::vector<at::Tensor> results = run_chunk(given);
    outputs.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i) outputs[i].push_back(std::move(results[i]));
  }
  std::vector<at::Tensor> stacks;
  for (const std::vector<at::Tensor>& each : outputs) stacks.push_back(at::stack(each));
  return stacks;
}

}  // namespace weft::bindings
