#pragma once

#include <torch/csrc/utils/pybind.h>

namespace weft::device {

/// While it lives, Ctrl-C waits. A compilation calls functions of PyTorch's that are in Python, and takes what they
/// raise for a reason not to compile: a KeyboardInterrupt would be lost there. Python raises it behind the compilation.
///
/// Throws KeyboardInterrupt if that is due when it is made. Does nothing in other threads than the main one, to which
/// Python gives signals, and where somebody else than Python handles the signal.
class InterruptionsWait {
 public:
  InterruptionsWait();
  ~InterruptionsWait();
  InterruptionsWait(const InterruptionsWait&) = delete;
  InterruptionsWait& operator=(const InterruptionsWait&) = delete;

 private:
  PyObject* before_ = nullptr;  ///< the handler; null where nothing is done
  bool was_interrupted_ = false;
};

/// Whether an exception is KeyboardInterrupt, or another Python exception that is no error.
bool is_interruption(const std::exception_ptr& thrown);

}  // namespace weft::device
