#include "record/recording.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <atomic>

#include "record/recording_internal.h"

namespace weft::record {

namespace {

thread_local Recording* current_recording = nullptr;
std::atomic<uint64_t> next_serial{1};

constexpr c10::DispatchKeySet kIncluded({c10::DispatchKey::PrivateUse1, c10::DispatchKey::TESTING_ONLY_GenericMode});

constexpr c10::DispatchKeySet kWrapperKeys({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
                                            c10::DispatchKey::Functionalize, c10::DispatchKey::Batched});

/// Sets whether autograd gives a view of a base that has changed in place its gradient by the operations that made the
/// view, which is how functionalisation replays it (programs::ImportedRun), or by as_strided. Returns what was set.
bool replay_views(bool replayed) {
  auto& state = c10::AutogradState::get_tls_state();
  const bool before = state.get_view_replay_enabled();
  state.set_view_replay_enabled(replayed);
  return before;
}

}  // namespace

/// Sets the thread's dispatch keys. Removing a key leaves the bit of its backend, which is removed too: all tensors
/// would count as the backend's otherwise.
void include_keys(bool included) {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  keys.included_ = included ? keys.included_ | kIncluded
                            : (keys.included_ - kIncluded).remove_backend(c10::BackendComponent::PrivateUse1Bit);
  // Within a copy that has passed autograd (traits.cpp), factories are dispatched as they are elsewhere.
  if (!included) keys.excluded_ = keys.excluded_.remove(c10::DispatchKey::BackendSelect);
  c10::impl::_force_tls_local_dispatch_key_set(keys);
}

std::vector<int64_t> dense_strides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= std::max<int64_t>(sizes[i], 1)) strides[i] = stride;
  return strides;
}

at::Tensor original(const at::Tensor& tensor) {
  auto* found = as_recording(tensor);
  return found != nullptr && found->stands_for.defined() ? found->stands_for : tensor;
}

bool is_wrapper(const at::Tensor& tensor) { return tensor.key_set().has_any(kWrapperKeys); }

Recording::Recording(bool is_alone)
    : serial_(next_serial.fetch_add(1, std::memory_order_relaxed)), is_alone_(is_alone) {}

Recording::~Recording() {
  if (entered_) leave();
}

Recording* Recording::current() { return current_recording; }

bool Recording::is_alone() {
  for (const Recording* each = current_recording; each != nullptr; each = each->before_)
    if (each->is_alone_) return true;
  return false;
}

void Recording::enter() {
  register_kernels();
  before_ = current_recording;
  current_recording = this;
  entered_ = true;
  // Tensors that autograd saves here belong to the recording. The caller's hooks (checkpointing) must not see them.
  saw_hooks_ = !at::SavedTensorDefaultHooks::set_tracing(true);
  replayed_views_ = replay_views(true);
  include_keys(true);
}

void Recording::leave() {
  if (!entered_) return;
  entered_ = false;
  current_recording = before_;
  if (saw_hooks_) at::SavedTensorDefaultHooks::set_tracing(false);
  replay_views(replayed_views_);
  if (before_ == nullptr) include_keys(false);
}

Recording* Recording::suspend() {
  Recording* recording = std::exchange(current_recording, nullptr);
  if (recording == nullptr) return nullptr;
  recording->leaves_out_select_ = c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::BackendSelect);
  replay_views(recording->replayed_views_);
  include_keys(false);
  return recording;
}

void Recording::resume(Recording* recording) {
  current_recording = recording;
  if (recording == nullptr) return;
  replay_views(true);
  include_keys(true);
  c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::BackendSelect, recording->leaves_out_select_);
}

// ---- values

at::Tensor Recording::make(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t storage) {
  auto tensor = at::detail::make_tensor<RecordingTensor>(dtype, sizes, strides, serial_, values_++, storage);
  if (interceptor_ != nullptr) {
    metas_.push_back({dtype, sizes.vec()});
    ++sharers_[storage];
  }
  made_.emplace_back(tensor.getIntrusivePtr());
  storages_.push_back(storage);
  return tensor;
}

/// Writes the input's type into the record, from which input_types() reads it.
at::Tensor Recording::input(at::ScalarType dtype, at::IntArrayRef sizes, bool requires_grad, bool has_history) {
  auto tensor = make(dtype, sizes, dense_strides(sizes), values_);
  have_history_.push_back(has_history);
  if (requires_grad) graph_.add_input(tensor, inputs_);
  ++inputs_;
  record_.fixed(static_cast<int64_t>(dtype) << 1 | static_cast<int64_t>(requires_grad));
  record_.sizes({sizes.data(), sizes.size()});
  return tensor;
}

at::Tensor Recording::input_like(const at::Tensor& like, size_t first_dim, bool needs_gradient, bool is_carry) {
  const at::ScalarType dtype = like.scalar_type();
  return input(dtype, like.sizes().slice(first_dim), needs_gradient && has_gradients(dtype),
               is_carry || like.requires_grad() || is_wrapper(like));
}

RecordingTensor* Recording::own(const at::Tensor& tensor) const {
  auto* found = as_recording(tensor);
  return found != nullptr && found->recording == serial_ && !found->stands_for.defined() ? found : nullptr;
}

at::Tensor Recording::stand_in(const at::Tensor& tensor, at::IntArrayRef sizes) {
  auto& found = stand_ins_[tensor.unsafeGetTensorImpl()];
  if (!found.defined()) {
    auto made =
        at::detail::make_tensor<RecordingTensor>(tensor.scalar_type(), sizes, dense_strides(sizes), serial_, -1, -1);
    as_recording(made)->stands_for = tensor;
    // A transform doesn't tell whether it will ask for the gradient of its tensor, so the stand-in requires one. The
    // stand-in of a tensor with a tangent does too.
    const bool is_varied = is_wrapper(tensor) || tensor._fw_grad(/*level=*/0).defined();
    const bool may_require = is_varied && has_gradients(tensor.scalar_type()) && at::GradMode::is_enabled();
    if (tensor.requires_grad() || may_require) made.set_requires_grad(true);
    found = std::move(made);
  }
  return found;
}

std::optional<int64_t> Recording::id(const at::Tensor& tensor) {
  if (auto* value = own(tensor)) return value->id;
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return std::nullopt;
  return -1 - outside_index(tensor);
}

int64_t Recording::outside_index(const at::Tensor& given) {
  at::Tensor tensor = original(given);
  auto [known, is_new] = outside_index_.emplace(tensor.unsafeGetTensorImpl(), outside_.size());
  if (!is_new) return known->second;
  bool is_shown = tensor.is_same(given);  // the tensor itself is shown, not a stand-in
  if (is_shown && (tensor.unsafeGetTensorImpl()->is_python_dispatch() || tensor.key_set().has_any(kWrapperKeys))) {
    throw UnrecordableError("a tensor of a transform or of a subclass");
  }
  outside_.push_back(tensor);
  record_.fixed(static_cast<int64_t>(tensor.scalar_type()));
  record_.fixed(static_cast<int64_t>(tensor.layout()) << 8 | static_cast<int64_t>(tensor.device().type()));
  if (tensor.layout() != at::kStrided) throw UnsupportedError("a tensor of layout " + c10::str(tensor.layout()));
  record_.sizes({given.sizes().data(), given.sizes().size()});
  return known->second;
}

std::vector<std::pair<at::ScalarType, std::vector<int64_t>>> Recording::input_types() const {
  std::vector<std::pair<at::ScalarType, std::vector<int64_t>>> types;
  const int64_t* word = record_.words().data();  // as input() has written them
  for (int64_t i = 0; i < inputs_; ++i) {
    auto dtype = static_cast<at::ScalarType>(word[0] >> 1);
    types.emplace_back(dtype, std::vector<int64_t>(word + 2, word + 2 + word[1]));
    word += 2 + word[1];
  }
  return types;
}

std::vector<std::vector<int64_t>> Recording::outside_sizes() const {
  std::vector<std::vector<int64_t>> sizes;
  for (const at::Tensor& tensor : outside_) {
    auto found = stand_ins_.find(tensor.unsafeGetTensorImpl());
    sizes.push_back((found == stand_ins_.end() ? tensor : found->second).sizes().vec());
  }
  return sizes;
}

at::Tensor Recording::shown(size_t outside) const {
  const auto found = stand_ins_.find(outside_[outside].unsafeGetTensorImpl());
  return found == stand_ins_.end() ? outside_[outside] : found->second;
}

void Recording::finish(const std::vector<at::Tensor>& outputs, std::optional<size_t> carries) try {
  walk(outputs);
  if (!graph_.nodes_with_hooks().empty()) throw UnsupportedError("a hook on a gradient");
  refuse_effects_on_inputs(outputs, carries);
  refuse_hooks_on_carries(outputs, carries);
  set_outputs(outputs);
  for (const at::Tensor& output : outputs) {
    auto* value = own(output);
    output_uses_.push_back(value != nullptr ? graph_.use(output, *value) : GradientUse());
    record_.fixed(output_uses_.back().word());
  }
  graph_.write(record_);
} catch (const UnsupportedError& error) {
  failure_ = {Failure::kUnsupported, error.what(), {}};
  throw;
}

void Recording::set_outputs(const std::vector<at::Tensor>& outputs) {
  record_.fixed(kOutputs);
  for (const at::Tensor& output : outputs) {
    if (auto* value = own(output)) refuse_stale(*value);
    auto number = id(output);
    TORCH_CHECK(number.has_value(), "weft internal error: an output that is a number");
    outputs_.push_back(*number);
    record_.fixed(*number);
  }
}

size_t Recording::leaks() {
  arguments_.clear();
  graph_.clear();
  return std::count_if(made_.begin(), made_.end(), [](const auto& tensor) { return !tensor.expired(); });
}

std::vector<at::Tensor> Recording::kept() const {
  std::vector<at::Tensor> tensors;
  for (const auto& made : made_) {
    if (auto tensor = made.lock()) tensors.emplace_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace weft::record
