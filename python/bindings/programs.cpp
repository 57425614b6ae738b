// Programs and their texts: the results of passes, the buffer plan, the flops.

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "bindings/program.h"
#include "engine/compile_ahead.h"
#include "engine/engine.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "operator/donated_call.h"
#include "operator/flops.h"
#include "operator/program_table.h"
#include "passes/differentiation/gradient_paths.h"
#include "passes/differentiation/vjp.h"
#include "passes/pass_runner.h"
#include "passes/rolling/any_length.h"
#include "passes/simplification/constant_calls.h"
#include "runtime/memory/arena.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

Program run_passes(const Program& source, const std::vector<std::string>& names) {
  ir::Program program = *source;
  std::vector<std::string_view> views(names.begin(), names.end());
  passes::run_passes(program, views);
  passes::keep_paths(passes::GradientPaths(*source), program);
  return Program(std::move(program));
}

/// The two programs, of one function at two lengths, as one for any length; None if they aren't alike.
std::optional<Program> any_length(const Program& program, int64_t length, const Program& other, int64_t other_length) {
  std::optional<ir::Program> joined = passes::any_length(*program, length, *other, other_length);
  return joined ? std::optional(Program(*std::move(joined))) : std::nullopt;
}

/// The calls of PyTorch that follow from the inputs from `first` on alone, and the program that takes their results
/// behind its inputs; None if there is no such call.
std::optional<std::pair<Program, Program>> constant_calls(const Program& program, size_t first) {
  std::optional<passes::ConstantCalls> found = passes::constant_calls(*program, first);
  if (!found) return std::nullopt;
  return std::pair(Program(std::move(found->calls)), Program(std::move(found->rest)));
}

std::string plan(const std::string& text, const ir::Bindings& symbols) {
  return torch_operator::find_program(text)->executable()->plan(symbols);
}

int64_t count(const ir::Block& block, ir::OpCode code) {
  int64_t total = std::ranges::count(block.ops, code, &ir::Op::code);
  for (const ir::Op& op : block.ops)
    for (const ir::Block& region : op.regions) total += count(region, code);
  return total;
}

/// How many ops with this name a program has, in its loops too.
int64_t count_ops(const Program& program, std::string_view name) {
  const auto code = ir::op_named(name);
  check(code.has_value(), "no op is named '{}'", name);
  return count((*program).body, *code);
}

/// The program with results stored in inputs' memory; `pairs` are (input, result). RuntimeError if their types differ.
Program donate(const Program& source, const std::vector<std::pair<size_t, size_t>>& pairs) {
  ir::Program program = *source;
  for (auto [input, result] : pairs) program.donations.push_back({input, result});
  std::ranges::sort(program.donations, {}, &ir::Donation::result);
  ir::verify(program);
  return Program(std::move(program));
}

/// The (input, result) pairs of donations in a program's text, ordered by result.
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
  py::class_<Program>(m, "Program", "A program, as it is passed on inside the process.")
      .def(py::init<std::string_view>(), py::arg("text"))
      .def_property_readonly(
          "text", [](const Program& program) { return program.called()->text(); }, "As weft.call takes it.")
      .def("__str__", [](const Program& program) { return program.called()->text(); })
      .def("count", &count_ops, py::arg("op"), "How many ops of this name it has, in its loops too.");
  m.def("run_passes", &run_passes, py::arg("program"), py::arg("passes"));
  m.def("any_length", &any_length, py::arg("program"), py::arg("length"), py::arg("other"), py::arg("other_length"));
  m.def("constant_calls", &constant_calls, py::arg("program"), py::arg("first"));
  m.def("plan", &plan, py::arg("text"), py::arg("symbols"), py::call_guard<py::gil_scoped_release>());
  m.def("donate", &donate, py::arg("program"), py::arg("pairs"));
  m.def("donations", &donations, py::arg("text"));
  m.def("check_donated", &check_donated, py::arg("what"), py::arg("inputs"), py::arg("donated"));
  m.def(
      "trim_arena", [] { runtime::process_arena().trim(); }, py::call_guard<py::gil_scoped_release>(),
      "Gives memory that the engine keeps and nobody uses back to the system.");
  m.def("idle_arena_bytes", [] { return runtime::process_arena().idle_bytes(); }, "How much of such memory there is.");
  // Runs before the process destroys LLVM's objects, which threads may still be using.
  py::module_::import("atexit").attr("register")(
      py::cpp_function(&engine::end_compilations_ahead, py::call_guard<py::gil_scoped_release>()));
  m.def(
      "flops",
      [](std::string_view text, const std::vector<std::vector<int64_t>>& sizes) {
        return torch_operator::flops(torch_operator::find_program(text)->program(), sizes);
      },
      py::arg("text"), py::arg("sizes"));
}

}  // namespace weft::bindings
