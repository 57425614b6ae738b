#include "device/run/interruption.h"

#include <torch/csrc/Exceptions.h>

#include <csignal>

namespace py = pybind11;

namespace weft::device {

InterruptionsWait::InterruptionsWait() {
  if (Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire gil;
  const auto threading = py::module_::import("threading");
  if (!threading.attr("current_thread")().is(threading.attr("main_thread")())) return;
  const auto signal = py::module_::import("signal");
  if (signal.attr("getsignal")(SIGINT).is_none()) return;
  const py::cpp_function remember([this](const py::args&) { was_interrupted_ = true; });
  before_ = signal.attr("signal")(SIGINT, remember).release().ptr();
}

InterruptionsWait::~InterruptionsWait() {
  if (before_ == nullptr) return;
  const py::gil_scoped_acquire gil;
  const py::error_scope kept;  // the error that is being handled
  try {
    py::module_::import("signal").attr("signal")(SIGINT, py::reinterpret_steal<py::object>(before_));
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("weft: the handler of SIGINT");
  }
  if (was_interrupted_) PyErr_SetInterrupt();
}

bool is_interruption(const std::exception_ptr& thrown) try {
  std::rethrow_exception(thrown);
} catch (const py::error_already_set& error) {
  const py::gil_scoped_acquire gil;
  return !error.matches(PyExc_Exception);
} catch (python_error& error) {
  const py::gil_scoped_acquire gil;
  error.persist();
  return PyErr_GivenExceptionMatches(error.type, PyExc_Exception) == 0;
} catch (...) {
  return false;
}

}  // namespace weft::device
