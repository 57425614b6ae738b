#pragma once

#include <Python.h>

#include <exception>
#include <utility>

namespace weft::device {

/// Calls a function that calls Python, from a thread that may not have the GIL. Does nothing once Python has ended. A
/// Python error that is being raised is the caller's, and stays as it is. C++ exceptions of the function are dropped.
template <typename Function>
void with_python(Function&& function) {
  if (Py_IsInitialized() == 0) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  try {
    std::forward<Function>(function)();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): where somebody's code is, is not worth an error
  }
  PyErr_Restore(type, value, trace);
  PyGILState_Release(state);
}

}  // namespace weft::device
