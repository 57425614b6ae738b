#pragma once

#include <string>

namespace weft::override_kernels {

/// Whether aten::gru and similar operators run on Weft: for the process (weft.disable(), WEFT=0) and for this thread
/// (weft.disabled(), which nests).
void set_enabled(bool enabled);
bool enabled_for_process();
void enter_disabled();
void exit_disabled();
bool active();

/// Whether PyTorch's place for a device from outside (PrivateUse1) is Weft's own.
void set_has_device();
bool has_device();

/// Reports a call that Weft has no kernel for. It is counted in the statistics, and warned about once a reason
/// (operator/warnings.h). With WEFT_STRICT=1 it is the user's error instead.
void report_fallback(const std::string& op, const std::string& reason);

}  // namespace weft::override_kernels
