#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

#include "record/recording.h"
#include "record/traits.h"

namespace weft::record {

/// Sets whether this thread's operations reach the recorder's kernels.
void include_keys(bool included);

/// While it lives, this thread's operations are not recorded.
struct NotRecorded {
  NotRecorded() { include_keys(false); }
  ~NotRecorded() { c10::impl::_force_tls_local_dispatch_key_set(before_); }
  NotRecorded(const NotRecorded&) = delete;
  NotRecorded& operator=(const NotRecorded&) = delete;

 private:
  c10::impl::LocalDispatchKeySet before_ = c10::impl::tls_local_dispatch_key_set();
};

std::vector<int64_t> dense_strides(at::IntArrayRef sizes);

/// The tensor that this stand-in replaces.
at::Tensor original(const at::Tensor& tensor);

/// Whether the tensor is a transform's wrapper around another tensor, which holds the values.
bool is_wrapper(const at::Tensor& tensor);

/// The operation's number for a value that no operation has made.
constexpr size_t kNoMaker = SIZE_MAX;

/// Codes of entries in a record that are no operations; operations have positive numbers.
enum Part : int64_t { kDerived = -1, kOutputs = -2, kHook = -3 };

/// An operation that is being recorded.
struct Recording::Call {
  const c10::OperatorHandle& op;
  const Traits& traits;
  at::ArrayRef<c10::IValue> arguments;
  std::vector<int64_t> words;  ///< the key under which its results' types are found
  std::vector<int64_t> results;
  std::vector<int64_t> written = {};  ///< storages that it changes
};

}  // namespace weft::record
