// Scans whose program was found before (weft._control.scan_call): from the step to its results without going through
// Python, which takes longer than a short scan. As in Python, the step is run once on tensors without data, and a
// program is taken only if its record equals the step's word for word. Unusual calls are left to Python.

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/captured.h"
#include "bindings/program.h"
#include "bindings/tensor_tree.h"
#include "operator/autocast_state.h"
#include "operator/call.h"
#include "operator/program_table.h"
#include "override/state.h"
#include "record/recording.h"
#include "record/surroundings.h"

namespace py = pybind11;

namespace weft::bindings {

namespace {

using record::Recording;

/// weft._C.KnownScan: what is needed to call a scan's program again.
struct KnownScan {
  torch_operator::ProgramRef program;
  std::vector<at::Tensor> constants;  ///< inputs that belong to the program
  std::string ys;                     ///< the structure of the ys
};

/// The code of a step that was captured before. Steps with other code aren't looked up here, which only saves time.
struct KnownStep {
  static constexpr int kMostFailures = 8;

  py::object code;
  int failures = 0;  ///< how often the step was run here, and then again in Python
};

/// Python objects of weft._capture that are used here.
struct Python {
  py::object under_way;  ///< its `run` is the Run that this thread is recording
  py::object run_type;
  py::object describe_ys;  ///< describes the ys as a Run's `extra` does
  py::object module_type;  ///< torch.nn.Module
  py::object module_call;  ///< its __call__, unless torch.fx watches it
  py::object table_holder;
  CapturedTable* table;  ///< weft._capture.programs owns it
  py::object scan;       ///< "scan"
};

constexpr size_t kMostSteps = 512;

// Never freed: at exit Python ends before static objects do.
auto& known_steps = *new std::unordered_map<PyObject*, KnownStep>;
Python* python = nullptr;

/// The code object of a function; for any other step its type. A borrowed reference.
PyObject* code_of(PyObject* step) {
  if (PyMethod_Check(step)) step = PyMethod_GET_FUNCTION(step);
  return PyFunction_Check(step) ? PyFunction_GET_CODE(step) : reinterpret_cast<PyObject*>(Py_TYPE(step));
}

/// The value of a Python int; nothing for other objects and for ints of more than 64 bits.
std::optional<int64_t> integer(const py::object& object) {
  if (!PyLong_CheckExact(object.ptr())) return std::nullopt;
  int is_larger = 0;
  const auto value = static_cast<int64_t>(PyLong_AsLongLongAndOverflow(object.ptr(), &is_larger));
  return is_larger != 0 ? std::nullopt : std::optional(value);
}

/// The values of the variables that a step shares with the functions around it; None for a variable without a value.
std::vector<py::object> variables_of(PyObject* step) {
  const auto closure = py::reinterpret_steal<py::object>(PyObject_GetAttrString(step, "__closure__"));
  if (!closure) PyErr_Clear();
  std::vector<py::object> found;
  if (!closure || !PyTuple_Check(closure.ptr())) return found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(closure.ptr()); ++i) {
    PyObject* cell = PyTuple_GET_ITEM(closure.ptr(), i);
    if (!PyCell_Check(cell)) continue;
    auto value = py::reinterpret_steal<py::object>(PyCell_Get(cell));
    found.push_back(value ? std::move(value) : py::object(py::none()));
  }
  return found;
}

/// While it lives, operations are recorded, and weft._capture knows about it.
class Recorded {
 public:
  Recorded(Recording& recording, const py::object& run) : recording_(recording) {
    python->under_way.attr("run") = run;
    recording_.enter();
  }
  ~Recorded() {
    recording_.leave();
    if (PyObject_SetAttrString(python->under_way.ptr(), "run", Py_None) != 0) PyErr_Clear();
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  Recording& recording_;
};

/// A complex tensor as the program has it, the pairs [..., 2] of its parts (weft._capture.complex_numbers).
at::Tensor as_pairs(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
}

/// A call whose arguments are of the usual kind.
struct ScanCall {
  TensorTree carry, xs;
  int64_t length = 0;

  /// False for arguments of an unusual kind, and where a mode or a transform of this thread has to see the step.
  bool take(const py::object& init, const py::object& given, const py::object& steps) {
    const std::optional<int64_t> count = integer(steps);
    if (!carry.flatten(init.ptr()) || !xs.flatten(given.ptr()) || carry.has_none) return false;
    if (given.is_none() != xs.leaves.empty() || (xs.has_none && !given.is_none())) return false;
    if (steps.is_none() ? given.is_none() : !count) return false;
    if (at::autocast::is_autocast_enabled(at::kCPU) || at::autocast::is_autocast_enabled(at::kPrivateUse1) ||
        !py::object(python->module_type.attr("__call__")).is(python->module_call) ||
        !record::are_seen_by_none(carry.leaves) || !record::are_seen_by_none(xs.leaves) || !is_on_one_device())
      return false;
    if (!xs.leaves.empty() && xs.leaves[0].dim() == 0) return false;
    length = steps.is_none() ? xs.leaves[0].size(0) : *count;
    return length > 0 &&
           std::ranges::all_of(xs.leaves, [&](const at::Tensor& x) { return x.dim() > 0 && x.size(0) == length; });
  }

  /// Python has the error for tensors of several devices.
  bool is_on_one_device() const {
    const std::vector<at::Tensor>& any = carry.leaves.empty() ? xs.leaves : carry.leaves;
    const auto is_there = [&](const at::Tensor& leaf) { return leaf.device() == any[0].device(); };
    return any.empty() || (std::ranges::all_of(carry.leaves, is_there) && std::ranges::all_of(xs.leaves, is_there));
  }

  /// The arguments of the step: tensors without data.
  std::pair<py::object, py::object> step_arguments(Recording& recording) const {
    const bool needs_gradient = at::GradMode::is_enabled();
    auto like = [&](const std::vector<at::Tensor>& tensors, size_t first_dim) {
      std::vector<at::Tensor> made;
      for (const at::Tensor& tensor : tensors)
        made.push_back(recording.input_like(tensor, first_dim, needs_gradient, first_dim == 0));
      return made;
    };
    const std::vector<at::Tensor> first = like(carry.leaves, 0), x = like(xs.leaves, 1);
    return {unflatten(carry.structure, first.data()), unflatten(xs.structure, x.data())};
  }

  /// The inputs of the program.
  std::vector<at::Tensor> inputs(const CapturedTable::Table::Entry& entry, const KnownScan& scan,
                                 const Recording& recording) const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& leaf : carry.leaves) all.push_back(as_pairs(leaf));
    for (const at::Tensor& leaf : xs.leaves) all.push_back(as_pairs(leaf));
    if (xs.leaves.empty()) all.push_back(at::empty({length, 0}, at::kFloat));  // as only_steps() of scan_call.py
    for (const at::Tensor& tensor : recording.outside()) all.push_back(as_pairs(tensor));
    for (double number : entry.patterns.front()->free_numbers(recording.record()))
      all.push_back(at::scalar_tensor(number, at::kDouble));
    all.insert(all.end(), scan.constants.begin(), scan.constants.end());
    return all;
  }
};

/// One run of a step, and the structure of its ys.
struct StepRun {
  Recording* recording;
  py::object run;  ///< keeps the recording
  TensorTree ys;

  StepRun() {
    auto made = std::make_unique<Recording>();
    recording = made.get();
    run = python->run_type(py::cast(std::move(made)), py::none(), false, backwards_);
  }

  bool of(const ScanCall& call, const py::object& step) {
    const std::vector<py::object> before = variables_of(step.ptr());
    py::object result;
    {
      const auto [carry, x] = call.step_arguments(*recording);
      const Recorded recorded(*recording, run);
      result = step(carry, x);
      const bool is_pair = PyTuple_CheckExact(result.ptr()) && PyTuple_GET_SIZE(result.ptr()) == 2;
      if (!is_pair || !finish(call, result)) return false;
    }
    if (recording->failure()) return false;
    const std::vector<py::object> after = variables_of(step.ptr());
    return std::ranges::equal(before, after, [](const py::object& a, const py::object& b) { return a.is(b); });
  }

  /// Frees data that only a new program would need.
  void forget_backwards() const {
    if (!backwards_.empty()) backwards_.attr("clear")();
  }

  /// The last carry's and the ys' leaves: of the program's results those that are pairs as complex tensors.
  std::vector<at::Tensor> leaves(const ScanCall& call, std::vector<at::Tensor> results) const {
    const size_t carries = call.carry.leaves.size();
    for (size_t i = 0; i < results.size(); ++i) {
      const at::ScalarType dtype = i < carries ? call.carry.leaves[i].scalar_type() : dtypes_.at(i - carries);
      if (at::isComplexType(dtype)) results[i] = at::view_as_complex(results[i]);
    }
    return results;
  }

  /// The Run, from which Python can make a program.
  py::object described() const {
    std::vector<at::Tensor> any;
    for (const at::ScalarType dtype : dtypes_) any.push_back(at::empty({0}, dtype));
    run.attr("extra") = python->describe_ys(unflatten(ys.structure, any.data()));
    return run;
  }

 private:
  py::list backwards_;                  ///< the list in the Run
  std::vector<at::ScalarType> dtypes_;  ///< of the ys' leaves

  bool finish(const ScanCall& call, const py::object& result) {
    TensorTree carry;
    if (!carry.flatten(PyTuple_GET_ITEM(result.ptr(), 0)) || !ys.flatten(PyTuple_GET_ITEM(result.ptr(), 1)))
      return false;
    if (carry.structure != call.carry.structure ||
        !std::ranges::equal(carry.leaves, call.carry.leaves, record::is_like))
      return false;
    std::vector<at::Tensor> outputs = std::move(carry.leaves);
    outputs.insert(outputs.end(), ys.leaves.begin(), ys.leaves.end());
    recording->finish(outputs, call.carry.leaves.size());
    for (const at::Tensor& leaf : ys.leaves) dtypes_.push_back(leaf.scalar_type());
    ys.leaves.clear();
    return true;
  }
};

bool is_dual(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

/// Runs the step; nothing where Python has to run it.
std::optional<StepRun> run_step(const ScanCall& call, const py::object& step) {
  try {
    StepRun run;
    if (run.of(call, step)) return run;
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
  } catch (const std::exception&) {  // an error of the recording, which Python explains
  }
  return std::nullopt;
}

/// A scan's program that can be called from here.
struct FoundScan {
  CapturedTable::Table::Reference entry;  ///< null where there is none
  py::object holder;                      ///< keeps `scan` alive: the entry may get another
  const KnownScan* scan = nullptr;
};

/// Finds the program for what the step did. The step may have emptied the table.
FoundScan find_scan(const py::object& what, const ScanCall& call, const py::object& reverse, const StepRun& run) {
  FoundScan found;
  const auto key = py::make_tuple(what, py::make_tuple(reverse, call.carry.leaves.size(), call.xs.leaves.size()));
  found.entry = python->table->find(key, {run.recording}, [&](const Captured& known) {
    found.holder = py::reinterpret_steal<py::object>(PyObject_GetAttr(known.program.ptr(), python->scan.ptr()));
    if (!found.holder) throw py::error_already_set();
    if (found.holder.is_none()) return false;
    found.scan = found.holder.cast<const KnownScan*>();
    return found.scan->ys == run.ys.structure;
  });
  return found;
}

void count_failure(const py::object& code) {
  if (const auto known = known_steps.find(code.ptr()); known != known_steps.end()) ++known->second.failures;
}

/// (last carry, ys), computed by a known program. The step's Run if there is no such program. None if Python has to see
/// the whole call.
py::object scan_again(const py::object& what, const py::object& step, const py::object& init, const py::object& xs,
                      const py::object& length, const py::object& reverse, const py::object& dim) {
  const auto known = known_steps.find(code_of(step.ptr()));
  if (known == known_steps.end() || known->second.failures >= KnownStep::kMostFailures) return py::none();
  if (!PyBool_Check(reverse.ptr()) || integer(dim) != 0 || !override_kernels::active()) return py::none();
  ScanCall call;
  if (!call.take(init, xs, length)) return py::none();
  const py::object code = known->second.code;
  const std::optional<StepRun> run = run_step(call, step);
  if (!run) return count_failure(code), py::none();
  const auto [entry, holder, scan] = find_scan(what, call, reverse, *run);
  if (entry == nullptr) return run->described();
  // From here on no program can be made of the run.
  run->forget_backwards();
  if (run->recording->leaks() > 0) return count_failure(code), py::none();
  const std::vector<at::Tensor> inputs = call.inputs(*entry, *scan, *run->recording);
  // In forward mode torch.no_grad has no effect, and captured tensors have gradients that the record doesn't show.
  if (std::ranges::any_of(inputs, is_dual) &&
      (run->recording->stops_gradients() || std::ranges::any_of(run->recording->outside(), is_dual)))
    return count_failure(code), py::none();
  std::vector<at::Tensor> results;
  {
    const py::gil_scoped_release released;
    results = run->leaves(call, torch_operator::call(scan->program, inputs));
  }
  return py::make_tuple(unflatten(call.carry.structure, results.data()),
                        unflatten(run->ys.structure, results.data() + call.carry.leaves.size()));
}

/// Makes the scan that scan_again() finds for later steps with the code of `step`, if these do the same as the step
/// that the program was captured from. `ys`: a y or a tree of ys. None if the structure of `ys` is of an unusual kind.
std::shared_ptr<KnownScan> known_scan(const py::object& step, const Program& program, std::vector<at::Tensor> constants,
                                      const py::object& ys) {
  TensorTree tree;
  if (!tree.flatten(ys.ptr())) return nullptr;
  // The destructors may call this module again.
  if (known_steps.size() >= kMostSteps) std::exchange(known_steps, {});
  const auto code = py::reinterpret_borrow<py::object>(code_of(step.ptr()));
  known_steps[code.ptr()].code = code;
  return std::make_shared<KnownScan>(KnownScan{program.called(), std::move(constants), tree.structure});
}

}  // namespace

void init_known_scans(py::module_& m) {
  py::class_<KnownScan, std::shared_ptr<KnownScan>>(m, "KnownScan", "A program of a scan that scan_again() can call.");
  m.def("scan_again", torch::wrap_pybind_function(&scan_again), py::arg("what"), py::arg("step"), py::arg("init"),
        py::arg("xs"), py::arg("length"), py::arg("reverse"), py::arg("dim"));
  m.def("known_scan", &known_scan, py::arg("step"), py::arg("program"), py::arg("constants"), py::arg("ys"));
  m.def("variables_of", [](py::handle step) { return variables_of(step.ptr()); });
  m.def(
      "set_scans_python",
      [](py::object under_way, py::object run_type, py::object describe_ys, py::object module_type, py::object table) {
        py::object call = module_type.attr("__call__");
        auto* captured = table.cast<CapturedTable*>();
        python = new Python{std::move(under_way),
                            std::move(run_type),
                            std::move(describe_ys),
                            std::move(module_type),
                            std::move(call),
                            std::move(table),
                            captured,
                            py::str("scan")};
      },
      py::arg("under_way"), py::arg("run_type"), py::arg("describe_ys"), py::arg("module_type"), py::arg("table"));
}

}  // namespace weft::bindings
