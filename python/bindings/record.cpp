// Recordings of Python functions, for weft._capture.record.

#include <ATen/SavedTensorHooks.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <typeinfo>

#include "bindings/bindings.h"
#include "record/recording.h"
#include "record/surroundings.h"

namespace py = pybind11;

namespace weft::bindings {

namespace {

using record::Recording;
using record::SizeFit;
using record::Template;

/// The leaves, with each tensor replaced by an input. `first_dims`: by place, the first dim of the tensor that the
/// input has. The first `carries` leaves are results of the step before.
py::list inputs_like(Recording& recording, const py::list& leaves, const py::dict& first_dims, bool needs_gradient,
                     size_t carries) {
  py::list inputs;
  for (size_t i = 0; i < leaves.size(); ++i) {
    py::object leaf = leaves[i];
    if (!THPVariable_Check(leaf.ptr())) {
      inputs.append(leaf);
      continue;
    }
    const at::Tensor& like = THPVariable_Unpack(leaf.ptr());
    py::int_ place(i);
    size_t first_dim = first_dims.contains(place) ? first_dims[place].cast<size_t>() : 0;
    inputs.append(recording.input_like(like, first_dim, needs_gradient, i < carries));
  }
  return inputs;
}

/// Whether all elements are tensors, and each pair has equal sizes and dtypes.
bool are_alike(const py::list& first, const py::list& second) {
  if (first.size() != second.size()) return false;
  for (size_t i = 0; i < first.size(); ++i) {
    py::object a = first[i], b = second[i];
    if (!THPVariable_Check(a.ptr()) || !THPVariable_Check(b.ptr())) return false;
    if (!record::is_like(THPVariable_Unpack(a.ptr()), THPVariable_Unpack(b.ptr()))) return false;
  }
  return true;
}

/// The functions of one of Python's hooks. PyTorch doesn't export the hooks' classes, so they are recognised by name.
std::vector<py::object> functions_of(PyObject* dict) {
  std::vector<py::object> functions;
  for (auto item : py::reinterpret_borrow<py::dict>(dict))
    functions.push_back(py::reinterpret_borrow<py::object>(item.second));
  PyDict_Clear(dict);  // a function that keeps its own tensor is then freed in time
  return functions;
}

template <typename PythonHook, typename Hook>
PythonHook* as_python_hook(Hook& hook, std::string_view name) {
  return std::string_view(typeid(hook).name()).find(name) == std::string_view::npos ? nullptr
                                                                                    : static_cast<PythonHook*>(&hook);
}

/// Removes the hooks on nodes that gradients of the outputs pass. Returns them in the order in which they are called,
/// as (node, output, whether they take a tuple, functions, the gradient's dtype, its sizes, Python's node or the input
/// whose gradient it is).
py::list take_hooks(Recording& recording, const std::vector<at::Tensor>& outputs) {
  using namespace torch::autograd;
  py::list found;
  for (const auto& node : recording.nodes_with_hooks(outputs)) {
    const auto add = [&](size_t output, bool takes_tuple, PyObject* dict) {
      const auto use = recording.use_of(node, static_cast<uint32_t>(output));
      const auto& like = node->input_metadata(output);
      std::vector<int64_t> sizes;
      for (const auto& size : like.shape_as_dim_vector()) sizes.push_back(size.guard_int(__FILE__, __LINE__));
      const int64_t input = recording.graph().is_source(node.get()) ? recording.graph().inputs().at(output) : -1;
      py::object shown = input < 0 ? py::reinterpret_steal<py::object>(functionToPyObject(node)) : py::int_(input);
      found.append(py::make_tuple(use.node, use.output, takes_tuple, functions_of(dict), like.dtype().toScalarType(),
                                  sizes, shown));
    };
    for (const auto& hook : node->tensor_pre_hooks()) {
      auto* known = as_python_hook<PyFunctionTensorPreHook>(*hook, "PyFunctionTensorPreHook");
      if (known == nullptr) throw record::UnsupportedError("a hook on a gradient that is not Python's");
      add(known->value_idx, false, known->dict);
    }
    for (const auto& hook : node->pre_hooks()) {
      auto* known = as_python_hook<PyFunctionPreHook>(*hook, "PyFunctionPreHook");
      if (known == nullptr) throw record::UnsupportedError("a hook on a gradient that is not Python's");
      if (node->num_inputs() != 1)
        throw record::UnsupportedError("a hook on the gradients of several results (grad_fn.register_prehook)");
      add(0, true, known->dict);
    }
    if (!node->post_hooks().empty())
      throw record::UnsupportedError("a hook on the gradients that a node gives (grad_fn.register_hook)");
    node->tensor_pre_hooks().clear();
    node->pre_hooks().clear();
  }
  return found;
}

/// Holds a function that a thread without the GIL may free.
std::shared_ptr<py::function> kept(py::function function) {
  return {new py::function(std::move(function)), [](py::function* held) {
            const py::gil_scoped_acquire gil;
            delete held;  // NOLINT: the shared pointer's
          }};
}

/// A Function's backward for DerivedNode.
record::DerivedNode::Backward backward_with(py::function function) {
  return
      [kept = kept(std::move(function))](const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values,
                                         const std::vector<at::Tensor>& cotangents) {
        const py::gil_scoped_acquire gil;
        std::vector<at::Tensor> given;
        for (const py::handle found : (*kept)(inputs, values, cotangents))
          given.push_back(found.is_none() ? at::Tensor() : found.cast<at::Tensor>());
        return given;
      };
}

std::optional<size_t> first_of(const Recording& recording, const std::string& name) {
  const auto& all = recording.operations();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].op && all[i].op->operator_name().name == name) return i;
  return std::nullopt;
}

py::object failure(const Recording& recording) {
  if (!recording.failure()) return py::none();
  const auto& found = *recording.failure();
  static constexpr const char* kKinds[] = {"reads", "mutates", "unsupported", "unrecordable"};
  py::object changed = found.changed.defined() ? py::cast(found.changed) : py::none();
  return py::make_tuple(kKinds[found.kind], found.reason, changed);
}

/// A context manager that suspends recording.
struct Suspended {
  Recording* before = nullptr;
};

/// A context manager that switches off the hooks on tensors that autograd saves.
struct WithoutSavedTensorHooks {
  bool before = false;
};

}  // namespace

void init_record(py::module_& m) {
  py::class_<Recording>(m, "StepRecording")
      .def(py::init<bool>(), py::arg("is_alone") = false)
      .def("enter", &Recording::enter)
      .def("leave", &Recording::leave)
      .def(
          "input",
          [](Recording& recording, const at::ScalarType& dtype, const std::vector<int64_t>& sizes, bool requires_grad,
             bool has_history) { return recording.input(dtype, sizes, requires_grad, has_history); },
          py::arg("dtype"), py::arg("sizes"), py::arg("requires_grad"), py::arg("has_history"))
      .def("inputs_like", &inputs_like, py::arg("leaves"), py::arg("first_dims"), py::arg("needs_gradient"),
           py::arg("carries"))
      .def(
          "stand_in",
          [](Recording& recording, const at::Tensor& tensor, const std::vector<int64_t>& sizes) {
            return recording.stand_in(tensor, sizes);
          },
          py::arg("tensor"), py::arg("sizes"))
      .def("finish", py::overload_cast<const std::vector<at::Tensor>&, std::optional<size_t>>(&Recording::finish),
           py::arg("outputs"), py::arg("carries"))
      .def(
          "derived",
          [](Recording& recording, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values,
             const Recording& part, size_t payload, py::function backward) {
            return recording.derived(inputs, values, part.record(), payload, backward_with(std::move(backward)));
          },
          py::arg("inputs"), py::arg("values"), py::arg("part"), py::arg("payload"), py::arg("backward"))
      .def(
          "look_at",
          [](Recording& recording, size_t operation, py::function look) {
            recording.look_at(operation, [look = kept(std::move(look))] {
              const py::gil_scoped_acquire gil;
              (*look)();
            });
          },
          py::arg("operation"), py::arg("look"))
      .def("take_hooks", &take_hooks, py::arg("outputs"))
      .def(
          "hooked",
          [](Recording& recording, int32_t node, uint32_t output, const std::vector<at::Tensor>& inputs,
             const Recording& part, size_t payload,
             bool derivable) { recording.hooked({node, output}, inputs, part.record(), payload, derivable); },
          py::arg("node"), py::arg("output"), py::arg("inputs"), py::arg("part"), py::arg("payload"),
          py::arg("derivable"))
      .def_property_readonly("stops_gradients", &Recording::stops_gradients)
      .def("leaks", &Recording::leaks)
      .def("kept", &Recording::kept)
      .def("id", &Recording::id, py::arg("tensor"))
      .def(
          "is_changed",
          [](Recording& recording, const at::Tensor& tensor) {
            const auto id = recording.id(tensor);
            return id && *id >= 0 && recording.is_changed_from(0, *id);
          },
          py::arg("tensor"), "Whether an operation has written to the memory of a tensor of the recording.")
      .def("first_of", &first_of, py::arg("name"), "The first operation of an operator, named as aten::sort; or None.")
      .def_property_readonly("structure", [](const Recording& r) { return r.record().structure(); })
      .def_property_readonly("words", [](const Recording& r) { return r.record().words(); })
      .def_property_readonly("outside", [](const Recording& r) { return r.outside(); })
      .def_property_readonly("outside_sizes", &Recording::outside_sizes)
      .def_property_readonly("outputs", [](const Recording& r) { return r.outputs(); })
      .def_property_readonly("failure", &failure);
  m.def("recording", []() { return Recording::current() != nullptr; }, "Whether this thread is within a recording.");
  m.def("are_nodes_watched", &record::are_nodes_watched,
        "Whether this thread shows each node of autograd's graph to somebody as it is made.");
  m.def(
      "refuse_backward",
      [](const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, bool accumulates) {
        Recording::current()->refuse_backward(outputs, inputs, accumulates);
      },
      py::arg("outputs"), py::arg("inputs"), py::arg("accumulates"),
      "Raises UnsupportedError where a backward within the function that is recorded can't be.");
  m.def(
      "gradients",
      [](const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
         const std::vector<at::Tensor>& cotangents, bool create_graph) {
        const py::gil_scoped_release released;
        return torch::autograd::grad(outputs, inputs, cotangents, std::nullopt, create_graph, /*allow_unused=*/true);
      },
      py::arg("outputs"), py::arg("inputs"), py::arg("cotangents"), py::arg("create_graph"),
      "torch.autograd.grad, which imports SymPy to compare the cotangents' sizes. Undefined gradients are None.");
  m.def(
      "is_from_outside", [](const at::Tensor& tensor) { return Recording::current()->is_from_outside(tensor); },
      "Whether the function that is recorded has not made the tensor.");
  m.def("is_dual", [](const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); });
  m.def(
      "is_plain", &record::is_plain,
      "Whether the tensor's numbers can be read here: no subclass with operations of its own, no transform's wrapper.");
  m.def("are_plain",
        [](const std::vector<at::Tensor>& tensors) { return std::ranges::all_of(tensors, record::is_plain); });
  m.def("are_alike", &are_alike);
  m.def("is_recorded", [](const at::Tensor& tensor) { return record::as_recording(tensor) != nullptr; });
  py::class_<Suspended>(m, "Suspended")
      .def(py::init<>())
      .def("__enter__", [](Suspended& self) { self.before = Recording::suspend(); })
      .def("__exit__", [](Suspended& self, const py::args&) { Recording::resume(self.before); });
  py::class_<WithoutSavedTensorHooks>(m, "WithoutSavedTensorHooks")
      .def(py::init<>())
      .def("__enter__",
           [](WithoutSavedTensorHooks& self) { self.before = at::SavedTensorDefaultHooks::set_tracing(true); })
      .def("__exit__", [](WithoutSavedTensorHooks& self, const py::args&) {
        at::SavedTensorDefaultHooks::set_tracing(self.before);
      });
  py::class_<SizeFit>(m, "SizeFit", "Sizes as expressions of symbols, by what they are in runs of other sizes.");
  py::class_<Template, std::shared_ptr<Template>>(m, "Template")
      .def_property_readonly("free", &Template::free)
      .def("matches", [](const Template& t, const Recording& r) { return t.matches(r.record()); })
      .def("differing_numbers", [](const Template& t, const Recording& r) { return t.differing_numbers(r.record()); })
      .def("free_numbers", [](const Template& t, const Recording& r) { return t.free_numbers(r.record()); })
      .def_property_readonly("bytes", &Template::bytes);
}

}  // namespace weft::bindings
