// Recordings of Python functions, for weft._capture.record.

#include <ATen/SavedTensorHooks.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "recorder/recording.h"

namespace py = pybind11;

namespace weft::bindings {

namespace {

using recorder::Operation;
using recorder::Record;
using recorder::Recording;
using recorder::SizeFit;
using recorder::Template;

/// An argument for Python: a tensor as ("value", number), any other as Python's object. `numbers`: the free numbers by
/// their place in the record; an operation's arguments take them in order and become ("number", which, value).
class Spelling {
 public:
  Spelling(Recording& recording, const Operation& operation, const std::vector<size_t>& free)
      : recording_(recording), word_(operation.first_word), end_(operation.end_word), free_(free) {}

  py::object operator()(const c10::IValue& value) {
    if (value.isTensor()) return tensor(value.toTensor());
    if (value.isDouble()) return number(value.toDouble());
    if (value.isTensorList() || (value.isList() && !value.isIntList() && !value.isSymIntList())) {
      py::list list;
      for (const c10::IValue& item : value.toListRef()) list.append((*this)(item));
      return list;
    }
    return torch::jit::toPyObject(value);
  }

 private:
  py::object tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return py::none();
    if (auto id = recording_.id(tensor)) return py::make_tuple("value", *id);
    if (tensor.scalar_type() == at::kDouble) return number(*tensor.const_data_ptr<double>());
    if (tensor.scalar_type() == at::kBool) return py::bool_(*tensor.const_data_ptr<bool>());
    return py::int_(*tensor.const_data_ptr<int64_t>());
  }

  py::object number(double value) {
    while (word_ < end_ && recording_.record().kinds()[word_] != Record::Kind::kNumber) ++word_;
    for (size_t i = 0; i < free_.size(); ++i) {
      if (free_[i] == word_) return ++word_, py::object(py::make_tuple("number", i, value));
    }
    ++word_;
    return py::float_(value);
  }

  Recording& recording_;
  size_t word_, end_;
  const std::vector<size_t>& free_;
};

/// (operator's name, arguments, grad mode, results' numbers, payload), in order.
py::list operations(Recording& recording, const std::vector<size_t>& free) {
  py::list list;
  for (const Operation& operation : recording.operations()) {
    size_t count = operation.op ? operation.op->schema().arguments().size() : 2;
    Spelling spell(recording, operation, free);
    py::list arguments;
    for (size_t i = 0; i < count; ++i) arguments.append(spell(recording.arguments()[operation.arguments + i]));
    py::object name = py::none();
    if (operation.op) {
      const auto& full = operation.op->operator_name();
      name = py::make_tuple(full.name, full.overload_name.empty() ? "default" : full.overload_name);
    }
    list.append(py::make_tuple(name, arguments, operation.grad_mode, operation.results, operation.payload));
  }
  return list;
}

/// The leaves, with inputs in the place of tensors. `first_dims`: by place, from which dim on an input has a tensor's.
py::list inputs_like(Recording& recording, const py::list& leaves, const py::dict& first_dims, bool needs_gradient) {
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
    inputs.append(recording.input_like(like, first_dim, needs_gradient));
  }
  return inputs;
}

/// Whether all are tensors, and each of the size and dtype of its pair.
bool are_alike(const py::list& first, const py::list& second) {
  if (first.size() != second.size()) return false;
  for (size_t i = 0; i < first.size(); ++i) {
    py::object a = first[i], b = second[i];
    if (!THPVariable_Check(a.ptr()) || !THPVariable_Check(b.ptr())) return false;
    if (!recorder::is_like(THPVariable_Unpack(a.ptr()), THPVariable_Unpack(b.ptr()))) return false;
  }
  return true;
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

void init_recorder(py::module_& m) {
  py::class_<Recording>(m, "StepRecording")
      .def(py::init<>())
      .def("enter", &Recording::enter)
      .def("leave", &Recording::leave)
      .def(
          "input",
          [](Recording& recording, const at::ScalarType& dtype, const std::vector<int64_t>& sizes, bool requires_grad) {
            return recording.input(dtype, sizes, requires_grad);
          },
          py::arg("dtype"), py::arg("sizes"), py::arg("requires_grad"))
      .def("inputs_like", &inputs_like, py::arg("leaves"), py::arg("first_dims"), py::arg("needs_gradient"))
      .def(
          "stand_in",
          [](Recording& recording, const at::Tensor& tensor, const std::vector<int64_t>& sizes) {
            return recording.stand_in(tensor, sizes);
          },
          py::arg("tensor"), py::arg("sizes"))
      .def("finish", &Recording::finish, py::arg("outputs"))
      .def("derived", [](Recording& recording, const std::vector<at::Tensor>& inputs,
                         const std::vector<at::Tensor>& values, const Recording& part,
                         size_t payload) { return recording.derived(inputs, values, part.record(), payload); })
      .def("leaks", &Recording::leaks)
      .def("kept", &Recording::kept)
      .def("id", &Recording::id, py::arg("tensor"))
      .def("operations", &operations, py::arg("free_numbers") = std::vector<size_t>{})
      .def_property_readonly("structure", [](const Recording& r) { return r.record().structure(); })
      .def_property_readonly("words", [](const Recording& r) { return r.record().words(); })
      .def_property_readonly("outside", [](const Recording& r) { return r.outside(); })
      .def_property_readonly("outside_sizes", &Recording::outside_sizes)
      .def_property_readonly("outputs", [](const Recording& r) { return r.outputs(); })
      .def_property_readonly("failure", &failure);
  m.def("recording", []() { return Recording::current() != nullptr; }, "Whether this thread is within a recording.");
  m.def(
      "is_plain", &recorder::is_plain,
      "Whether the tensor's numbers can be read here: no subclass with operations of its own, no transform's wrapper.");
  m.def("are_plain",
        [](const std::vector<at::Tensor>& tensors) { return std::ranges::all_of(tensors, recorder::is_plain); });
  m.def("are_alike", &are_alike);
  m.def("is_recorded", [](const at::Tensor& tensor) { return recorder::as_recording(tensor) != nullptr; });
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
  py::class_<SizeFit>(m, "SizeFit", "Sizes as expressions of symbols, by what they are in runs of other sizes.")
      .def(py::init<const std::vector<std::pair<int64_t, int64_t>>&, std::vector<int64_t>, bool>(), py::arg("samples"),
           py::arg("at_hand"), py::arg("guesses"));
  py::class_<Template>(m, "Template")
      .def(py::init([](const Recording& first, const Recording& second, const Recording* third,
                       SizeFit& sizes) -> std::unique_ptr<Template> {
             try {
               return std::make_unique<Template>(first.record(), second.record(), third ? &third->record() : nullptr,
                                                 sizes);
             } catch (const Template::Mismatch&) {
               return nullptr;
             }
           }),
           py::arg("first"), py::arg("second"), py::arg("third"), py::arg("sizes"))
      .def("free_number", &Template::free_number, py::arg("word"))
      .def_property_readonly("free", &Template::free)
      .def("matches", [](const Template& t, const Recording& r) { return t.matches(r.record()); })
      .def("differing_numbers", [](const Template& t, const Recording& r) { return t.differing_numbers(r.record()); })
      .def("free_numbers", [](const Template& t, const Recording& r) { return t.free_numbers(r.record()); })
      .def_property_readonly("bytes", &Template::bytes);
}

}  // namespace weft::bindings
