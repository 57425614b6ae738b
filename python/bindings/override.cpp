// The switch of the override kernels, the statistics, and the team that calls run on.

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>

#include "bindings/bindings.h"
#include "engine/engine.h"
#include "operator/call.h"
#include "operator/extern_call.h"
#include "operator/openmp_team.h"
#include "operator/program_table.h"
#include "override/quantized.h"
#include "override/state.h"
#include "runtime/threads/contention.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

py::dict engine_stats() {
  engine::Stats now = engine::stats();
  py::dict result;
  result["compiled"] = now.compiled;
  result["object_cache_hits"] = now.object_cache_hits;
  result["compile_seconds"] = now.compile_seconds;
  result["calls"] = torch_operator::calls_so_far();
  result["contended"] = runtime::contention().calls();
  result["fallbacks"] = now.fallbacks;
  result["extern"] = torch_operator::extern_calls_so_far();
  return result;
}

/// The number of threads that a call from this thread really gets.
int64_t team_size() {
  std::atomic<int64_t> members = 0;
  torch_operator::OpenMpTeam().run([&](int64_t, int64_t) { ++members; });
  return members;
}

}  // namespace

void init_override(py::module_& m) {
  m.def("set_enabled", &override_kernels::set_enabled, py::arg("enabled"));
  m.def("enabled", &override_kernels::enabled_for_process);
  m.def("active", &override_kernels::active);
  m.def("enter_disabled", &override_kernels::enter_disabled);
  m.def("exit_disabled", &override_kernels::exit_disabled);
  m.def("stats", &engine_stats);
  m.def(
      "kept_programs",
      [] {
        const torch_operator::KeptPrograms kept = torch_operator::kept_programs();
        return std::pair{kept.programs, kept.executables};
      },
      "How many programs the operator keeps, and how many of them are compiled.");
  m.def("rnn_quantized", torch::wrap_pybind_function_no_gil(&override_kernels::call_quantized),
        "The operator weft::_rnn_quantized, called in half the time that torch.ops takes to read its arguments.");
  m.def("team_size", &team_size, py::call_guard<py::gil_scoped_release>());
}

}  // namespace weft::bindings
