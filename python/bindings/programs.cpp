// Programs as text: what the passes make of one, its buffer plan, its flops.

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "engine/compile_ahead.h"
#include "engine/engine.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "operator/donated_call.h"
#include "operator/flops.h"
#include "operator/program_table.h"
#include "passes/differentiation/vjp.h"
#include "passes/pass_runner.h"
#include "runtime/arena.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

std::string run_passes(const std::string& text, const std::vector<std::string>& names) {
  ir::Program program = ir::parse(text);
  std::vector<std::string_view> views(names.begin(), names.end());
  passes::run_passes(program, views);
  return ir::print(program);
}

py::dict vjp(const std::string& text, const std::vector<bool>& wanted) {
  passes::Vjp split = passes::vjp(ir::parse(text), wanted);
  py::dict result;
  result["forward"] = ir::print(split.forward);
  result["backward"] = ir::print(split.backward);
  result["saved_inputs"] = split.saved_inputs;
  result["saved_outputs"] = split.saved_outputs;
  result["residuals"] = split.residuals;
  return result;
}

std::string plan(const std::string& text, const ir::Bindings& symbols) {
  return torch_operator::find_program(text)->executable()->plan(symbols);
}

/// The text with results stored in inputs' memory, pairs of input and result. RuntimeError if their types differ.
std::string donate(const std::string& text, const std::vector<std::pair<size_t, size_t>>& pairs) {
  ir::Program program = ir::parse(text);
  for (auto [input, result] : pairs) program.donations.push_back({input, result});
  std::ranges::sort(program.donations, {}, &ir::Donation::result);
  ir::verify(program);
  return ir::print(program);
}

/// The pairs of such a text, by result.
std::vector<std::pair<size_t, size_t>> donations(std::string_view text) {
  const torch_operator::ProgramRef program = torch_operator::find_program(text);
  std::vector<std::pair<size_t, size_t>> pairs;
  for (auto [input, result] : program->program().donations) pairs.emplace_back(input, result);
  return pairs;
}

void check_donated(const std::string& what, const std::vector<at::Tensor>& inputs, const std::vector<bool>& donated) {
  torch_operator::check_donated(what.c_str(), inputs, donated);
}

}  // namespace

void init_programs(py::module_& m) {
  m.def("normalise", [](const std::string& text) { return ir::print(ir::parse(text)); }, py::arg("text"));
  m.def("run_passes", &run_passes, py::arg("text"), py::arg("passes"));
  m.def("vjp", &vjp, py::arg("text"), py::arg("wanted"));
  m.def("plan", &plan, py::arg("text"), py::arg("symbols"), py::call_guard<py::gil_scoped_release>());
  m.def("donate", &donate, py::arg("text"), py::arg("pairs"));
  m.def("donations", &donations, py::arg("text"));
  m.def("check_donated", &check_donated, py::arg("what"), py::arg("inputs"), py::arg("donated"));
  m.def(
      "trim_arena", [] { runtime::process_arena().trim(); }, py::call_guard<py::gil_scoped_release>(),
      "Gives memory that the engine keeps and nobody uses back to the system.");
  // Before the process destroys what LLVM has, which threads may be using.
  py::module_::import("atexit").attr("register")(
      py::cpp_function(&engine::end_compilations_ahead, py::call_guard<py::gil_scoped_release>()));
  m.def("flops", &torch_operator::flops, py::arg("text"), py::arg("sizes"));
}

}  // namespace weft::bindings
