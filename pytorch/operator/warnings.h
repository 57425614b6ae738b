#pragma once

#include <functional>
#include <string>

namespace weft::torch_operator {

/// Warnings, each once a process.
///
/// Python's warnings need the GIL, for which a thread may wait long, and one that is made an error leaves the call as
/// an exception. So a warning waits while the thread holds a lock of Weft's that others wait for with the GIL, and
/// while what it runs could not go on after an exception: as long as a WarningsWait lives on the thread. Registered
/// locks (base/fork.h) need no such object, since nothing that warns is called under them.

/// Warns now, or when the thread's last WarningsWait is gone and deliver_warnings() is called. Throws what the warner
/// does; then the same text warns again the next time.
void warn_once(const std::string& text);

/// While it lives, warnings of this thread wait. They nest.
class WarningsWait {
 public:
  WarningsWait();
  ~WarningsWait();
  WarningsWait(const WarningsWait&) = delete;
  WarningsWait& operator=(const WarningsWait&) = delete;
};

/// Gives the warner what has waited on this thread, unless it is to wait still. Throws as warn_once() does.
void deliver_warnings();

/// What warns from now on, of one text on the thread where it arose; before that PyTorch's own warnings do. It has
/// been given nothing yet: each text warns once more. Called where nothing else runs: while the library is loaded, and
/// between tests.
using Warner = std::function<void(const std::string& text)>;
void set_warner(Warner warner);

}  // namespace weft::torch_operator
