// Programs as StableHLO, for weft._stablehlo.

#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "bindings/program.h"
#include "ir/binder.h"
#include "passes/differentiation/vjp.h"
#include "passes/pass_runner.h"
#include "stablehlo/write.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

/// The values of a program's symbols for inputs of these types. Without types the program must have no symbols.
ir::Bindings bindings_of(const ir::Program& program, const std::optional<std::vector<ir::Type>>& inputs) {
  std::vector<std::vector<int64_t>> sizes;
  if (!inputs) {
    for (ir::ValueId input : program.body.args) {
      const ir::Type& type = program.type(input);
      for (const ir::Dim& dim : type.shape)
        check(dim.is_constant(),
              "weft.stablehlo: the size {} of input {} of program @{} is no number: give inputs as an example",
              ir::to_string(dim), ir::to_string(type), program.name);
    }
    return {};
  }
  for (size_t i = 0; i < inputs->size(); ++i) {
    const ir::Type& given = (*inputs)[i];
    std::vector<int64_t>& mine = sizes.emplace_back();
    for (const ir::Dim& dim : given.shape) mine.push_back(dim.constant());
    if (i >= program.body.args.size()) continue;
    const ir::Type& type = program.type(program.body.args[i]);
    check(type.dtype == given.dtype, "input {} of program @{} must be {}, but got {}", i, program.name,
          ir::to_string(type), ir::to_string(given));
  }
  return ir::bind(program, sizes);
}

/// `wanted`: the inputs whose gradients are results too, given cotangents of all results. `optimise`: runs the passes
/// for all targets, which move work out of loops as XLA does not.
std::string write_stablehlo(const Program& source, const std::optional<std::vector<ir::Type>>& inputs,
                            const std::optional<std::vector<bool>>& wanted, bool optimise) {
  ir::Program program = *source;
  const ir::Bindings bindings = bindings_of(program, inputs);
  if (wanted) program = passes::value_and_vjp(program, *wanted);
  if (optimise) passes::run_passes(program, passes::compile_pipeline());
  return stablehlo::write(program, bindings);
}

py::list stablehlo_ops() {
  py::list ops;
  for (size_t i = 0; i < ir::kOpCount; ++i) {
    const auto code = static_cast<ir::OpCode>(i);
    ops.append(py::make_tuple(ir::info(code).name, stablehlo::lowered_as(code)));
  }
  return ops;
}

}  // namespace

void init_stablehlo(py::module_& m) {
  m.def("write_stablehlo", &write_stablehlo, py::arg("program"), py::arg("inputs"), py::arg("wanted"),
        py::arg("optimise"), py::call_guard<py::gil_scoped_release>());
  m.def("stablehlo_ops", &stablehlo_ops,
        "Every op of the IR, and what it becomes in words; empty if it has no lowering.");
}

}  // namespace weft::bindings
