#pragma once

#include <torch/csrc/utils/pybind.h>

namespace weft::device {

/// While it lives, Ctrl-C waits. A compilation calls functions of PyTorch in Python, and takes any exception of theirs
/// for a reason not to compile: a KeyboardInterrupt would be lost there. Python raises it after the compilation.
///
/// The constructor throws a KeyboardInterrupt that is already due. Does nothing outside the main thread, which is the
/// one that gets signals in Python, and if the signal's handler isn't Python's.
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
