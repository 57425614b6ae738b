#pragma once

#include <functional>
#include <string>

namespace weft::torch_operator {

/// Warnings, each once a process.
///
/// Python's warnings need the GIL, for which a thread may wait long, and a warning that the user turned into an error
/// is an exception. So a warning waits while a WarningsWait lives on the thread. The thread then holds a lock of Weft's
/// that others wait for with the GIL, or runs code that can't handle exceptions. Registered locks (base/fork.h) need no
/// such object, since nothing that warns is called under them.

/// Warns now, or else when the thread's last WarningsWait is gone and deliver_warnings() is called. Throws what the
/// warner throws; the same text then warns again the next time.
void warn_once(const std::string& text);

/// While it lives, warnings of this thread wait. They nest.
class WarningsWait {
 public:
  WarningsWait();
  ~WarningsWait();
  WarningsWait(const WarningsWait&) = delete;
  WarningsWait& operator=(const WarningsWait&) = delete;
};

/// Emits the warnings that have waited on this thread, unless a WarningsWait still lives. Throws as warn_once() does.
void deliver_warnings();

/// Sets the function that warns from now on. It gets one text, on the thread where the warning arose. PyTorch's own
/// warnings are used before it is set. All texts count as not given yet, so each warns once more. Must be called where
/// nothing else runs: while the library is loaded, and between tests.
using Warner = std::function<void(const std::string& text)>;
void set_warner(Warner warner);

}  // namespace weft::torch_operator
