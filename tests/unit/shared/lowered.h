#pragma once

#include <string>

#include "ir/text/parser.h"
#include "passes/pass_runner.h"
#include "planning/cpu/cpu_target.h"
#include "planning/schedule.h"

namespace weft::testing {

/// A program after all passes for a target, and its schedule, as the engine makes them.
struct Lowered {
  ir::Program program;
  planning::Schedule schedule;

  Lowered(ir::Program source, const planning::Target& target) : program(std::move(source)) { lower_for(target); }
  /// For this machine, or the one that settings name.
  explicit Lowered(const std::string& text) : program(ir::parse(text)) { lower_for(cpu_); }
  Lowered(const Lowered&) = delete;  // the schedule points into the program and to the target
  Lowered& operator=(const Lowered&) = delete;

 private:
  planning::CpuTarget cpu_;

  void lower_for(const planning::Target& target) {
    passes::PassRunner runner(program);
    runner.run(passes::compile_pipeline());
    runner.run(target.layout_passes());
    schedule = planning::lower(program, target);
  }
};

}  // namespace weft::testing
