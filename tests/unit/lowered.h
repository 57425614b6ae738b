#pragma once

#include <string>

#include "ir/parser.h"
#include "passes/pass_runner.h"
#include "planning/cpu/cpu_target.h"
#include "planning/schedule.h"

namespace weft::testing {

/// A program after all passes for a target, and its schedule, as the engine makes them.
struct Lowered {
  ir::Program program;
  planning::Schedule schedule;

  Lowered(ir::Program source, const planning::Target& target) : program(std::move(source)) {
    passes::PassRunner runner(program);
    runner.run(passes::compile_pipeline());
    runner.run(target.layout_passes());
    schedule = planning::lower(program, target);
  }
  /// For this machine.
  explicit Lowered(const std::string& text) : Lowered(ir::parse(text), cpu()) {}
  Lowered(const Lowered&) = delete;  // the schedule points into the program
  Lowered& operator=(const Lowered&) = delete;

 private:
  static const planning::Target& cpu() {
    static const planning::CpuTarget target;
    return target;
  }
};

}  // namespace weft::testing
