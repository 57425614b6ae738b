// Passes warnings to Python's module `warnings`.

#include "operator/warnings.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <mutex>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/setting_names.h"
#include "bindings/bindings.h"
#include "override/state.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

/// Warnings of threads without a Python state.
struct Strays {
  std::mutex mutex;
  std::vector<std::string> texts;
  PyObject* function = nullptr;
  Strays() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Strays& strays = *new Strays;

/// Warns in the main thread, between two of Python's instructions. No call of the user's could take an error there.
int warn_of_strays(void*) {
  std::vector<std::string> texts;
  {
    const std::lock_guard lock(strays.mutex);
    texts.swap(strays.texts);
  }
  for (const std::string& text : texts) {
    try {
      py::reinterpret_borrow<py::function>(strays.function)(text);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("a warning of weft's, in a thread without Python");
    }
  }
  return 0;
}

void warn(PyObject* function, const std::string& text) {
  if (Py_IsInitialized() == 0) {
    TORCH_WARN(text);
    return;
  }
  if (PyGILState_GetThisThreadState() == nullptr) {
    {
      const std::lock_guard lock(strays.mutex);
      strays.texts.push_back(text);
    }
    Py_AddPendingCall(warn_of_strays, nullptr);  // if too many calls are pending, a later one warns
    return;
  }
  const py::gil_scoped_acquire gil;
  const py::error_scope kept;  // the error that is being handled
  try {
    py::reinterpret_borrow<py::function>(function)(text);
  } catch (py::error_already_set& error) {  // PyTorch's form of the error can cross the threads of its engine
    error.restore();
    python_error thrown;
    thrown.persist();
    throw thrown;  // NOLINT(misc-throw-by-value-catch-by-reference,cert-err09-cpp,cert-err61-cpp)
  }
}

void set_warner(const py::function& here, const py::function& elsewhere) {
  strays.function = elsewhere.inc_ref().ptr();
  torch_operator::set_warner([function = here.inc_ref().ptr()](const std::string& text) { warn(function, text); });
}

}  // namespace

void init_warnings(py::module_& m) {
  // Translates PyTorch's form of a Python error as PyTorch's own bindings do.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(std::move(thrown));
    } catch (python_error& error) {
      error.restore();
    }
  });
  m.def("set_warner", &set_warner, py::arg("here"), py::arg("elsewhere"),
        "Two functions of a text: where the calling thread is the one that warns, and where it is another one.");
  m.def("report_fallback", &override_kernels::report_fallback, py::arg("op"), py::arg("reason"));
  m.def("setting_names", &setting_names, "The environment variables that settings were read from.");
}

}  // namespace weft::bindings
