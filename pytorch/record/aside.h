#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "record/recording.h"

namespace weft::record {

/// While it lives, nothing in this thread is recorded.
class Paused {
 public:
  Paused() = default;
  ~Paused() { Recording::resume(recording_); }
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  Recording* recording_ = Recording::suspend();
};

/// While it lives, this thread's operations run below autograd, autocast and the caller's modes, and no recording sees
/// them.
class Aside {
  c10::impl::ForceDispatchKeyGuard keys_{
      c10::default_included_set,
      c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset};
  at::AutoGradMode no_grad_{false};
  Paused paused_;
};

}  // namespace weft::record
