// Steps as object files, for weft._packages.

#include <pybind11/stl.h>

#include <cstring>

#include "bindings/bindings.h"
#include "bindings/program.h"
#include "packages/package.h"
#include "packages/plan/bound.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

/// A tensor's dtype by name, its sizes and its bytes.
using Tensor = std::tuple<std::string, std::vector<int64_t>, py::bytes>;

DType dtype_of(const std::string& name) {
  const auto dtype = dtype_named(name);
  check(dtype.has_value(), "no dtype is named '{}'", name);
  return *dtype;
}

std::vector<interpreter::Array> arrays(const std::vector<Tensor>& tensors) {
  std::vector<interpreter::Array> all;
  for (const auto& [dtype, sizes, bytes] : tensors) {
    interpreter::Array& array = all.emplace_back(dtype_of(dtype), sizes);
    const std::string_view data = bytes;
    check(data.size() == array.bytes.size(), "a tensor has {} bytes instead of {}", data.size(), array.bytes.size());
    std::memcpy(array.bytes.data(), data.data(), data.size());
  }
  return all;
}

packages::StepModel step_model(const std::string& name, const Program& program, const std::vector<Tensor>& states,
                               const std::vector<std::pair<std::string, std::vector<int64_t>>>& inputs,
                               const std::vector<Tensor>& weights, std::vector<std::vector<std::string>> names,
                               const std::string& stored, const std::string& activations) {
  packages::StepModel model{name, *program,         arrays(states),       {}, arrays(weights), {}, {},
                            {},   dtype_of(stored), dtype_of(activations)};
  for (const auto& [dtype, sizes] : inputs)
    model.inputs.push_back({dtype_of(dtype), ir::Shape(sizes.begin(), sizes.end())});
  check(names.size() == 3, "names are those of states, inputs and outputs");
  model.state_names = std::move(names[0]);
  model.input_names = std::move(names[1]);
  model.output_names = std::move(names[2]);
  return model;
}

py::dict compile(const packages::StepModel& model, const std::string& target, bool assembly) {
  packages::Object object;
  {
    const py::gil_scoped_release release;
    object = packages::compile(model, packages::find_target(target), assembly);
  }
  py::dict result;
  result["object"] = py::bytes(object.bytes);
  result["assembly"] = object.assembly;
  result["fingerprint"] = object.fingerprint;
  result["state_bytes"] = object.state_bytes;
  result["state_align"] = object.state_align;
  result["saved_bytes"] = object.saved_bytes;
  result["weights"] = object.weights;
  result["weight_bytes"] = object.weight_bytes;
  return result;
}

/// Dtype and sizes of each output of a step.
std::vector<std::pair<std::string_view, std::vector<int64_t>>> outputs(const packages::StepModel& model) {
  const packages::Bound step(model);
  const ir::Program& program = step.program();
  std::vector<std::pair<std::string_view, std::vector<int64_t>>> all;
  for (size_t i = step.states(); i < program.body.results.size(); ++i) {
    const ir::ValueId value = program.body.results[i];
    all.emplace_back(name_of(program.type(value).dtype), packages::sizes_of(program, value));
  }
  return all;
}

}  // namespace

void init_packages(py::module_& m) {
  py::class_<packages::StepModel>(m, "StepModel", "A step with its states, weights and names, to be compiled.")
      .def(py::init(&step_model), py::arg("name"), py::arg("program"), py::arg("states"), py::arg("inputs"),
           py::arg("weights"), py::arg("names"), py::arg("stored") = "f32", py::arg("activations") = "f32")
      .def("compile", &compile, py::arg("target"), py::arg("assembly") = false)
      .def("outputs", &outputs, "Dtype and sizes of each output.");
  m.def(
      "package_choice",
      [](const std::string& name, const std::vector<std::string>& targets) {
        return py::bytes(packages::compile_choice(name, targets));
      },
      py::arg("name"), py::arg("targets"),
      "The object that chooses among targets of one architecture, the best first.");
  m.def(
      "package_archive",
      [](const std::vector<std::pair<std::string, py::bytes>>& members, const std::string& architecture) {
        std::vector<std::pair<std::string, std::string>> all;
        for (const auto& [name, bytes] : members) all.emplace_back(name, std::string(bytes));
        return py::bytes(packages::archive(all, architecture));
      },
      py::arg("members"), py::arg("architecture"), "What `ar` writes.");
  m.def("package_targets", [] {
    std::vector<std::pair<std::string_view, std::string_view>> all;
    for (const packages::Target& target : packages::targets()) all.emplace_back(target.name, target.architecture);
    return all;
  });
  m.def("package_host", &packages::host_target, py::arg("bytes") = false,
        "The best target that this machine runs; with `bytes` of those, too, that products of bytes alone gain by.");
  m.def(
      "package_runs", [](const std::string& target) { return packages::runs_here(packages::find_target(target)); },
      py::arg("target"), "Whether this machine's processor has the target's instructions.");
}

}  // namespace weft::bindings
