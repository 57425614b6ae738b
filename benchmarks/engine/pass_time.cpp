// How long the passes, the lowering and the plan take, by the size of the program: milliseconds at each size, and the
// exponent with which they grow. LLVM's time (--compile) stands apart.
//
//   pass_time [--sizes 1000,4000,16000] [--only TEXT] [--repeats 3] [--details] [--compile] [--roll]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/settings.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "jit/jit.h"
#include "large_programs.h"
#include "passes/differentiation/vjp.h"
#include "passes/pass_runner.h"
#include "planning/cpu/cpu_target.h"
#include "planning/schedule.h"
#include "runtime/kernels/packs.h"
#include "runtime/memory/arena_layout.h"
#include "runtime/plan/run.h"
#include "runtime/plan/stage_sizes.h"

namespace {

using weft::ir::Program;
using weft::large_programs::Kind;

/// Milliseconds of the calling thread's own: others on the machine don't count.
double thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

struct Options {
  std::vector<int64_t> sizes = {1000, 4000, 16000};
  std::string only;
  int64_t repeats = 3;
  bool details = false, compile = false, roll = false;
};

/// Milliseconds by phase, in the order in which the phases ran first.
class Times {
 public:
  template <typename F>
  void measure(const std::string& phase, F&& work) {
    const double start = thread_time();
    work();
    const double took = thread_time() - start;
    if (!took_.contains(phase)) order_.push_back(phase);
    took_[phase] += took;
  }

  const std::vector<std::string>& order() const { return order_; }
  /// Takes each phase's time from `other` where it is shorter.
  void take_less(const Times& other) {
    for (auto& [phase, took] : took_) took = std::min(took, other.at(phase));
  }
  double at(const std::string& phase) const {
    auto found = took_.find(phase);
    return found == took_.end() ? 0 : found->second;
  }

 private:
  std::map<std::string, double> took_;
  std::vector<std::string> order_;
};

/// The times of one program of one size.
struct Result {
  int64_t ops = 0, stages = 0, buffers = 0;
  double new_length_us = 0;
  Times passes, others;

  double pass_time() const {
    double sum = 0;
    for (const std::string& phase : passes.order()) sum += passes.at(phase);
    return sum;
  }
};

/// The derivative with respect to all floating inputs, with recomputed and kept values in one program.
Program differentiate(const Program& program) {
  std::vector<bool> wanted;
  for (weft::ir::ValueId input : program.body.args) wanted.push_back(is_floating(program.type(input).dtype));
  return weft::passes::vjp_of_primals(program, wanted);
}

/// Microseconds of planning for sizes that were not seen before: one call to warm up, then the mean of several.
double new_length_us(const weft::runtime::Plan& plan, const weft::runtime::ArenaPlanner& planner) {
  constexpr int kTimes = 8;
  auto lay_out = [&](int64_t value) {
    const std::vector<int64_t> symbols(plan.symbols.size(), value);
    weft::runtime::stage_sizes(plan, symbols, weft::runtime::packs_of_products(plan, symbols), 2);
    planner.lay_out(symbols, true);
  };
  lay_out(31);
  Times times;
  times.measure("all", [&] {
    for (int i = 0; i < kTimes; ++i) lay_out(32 + i);
  });
  return times.at("all") * 1000 / kTimes;
}

Result run(const Kind& kind, int64_t size, const Options& options) {
  Result result;
  Program program = kind.make(kind.differentiated ? size / 3 : size);
  if (kind.differentiated) result.passes.measure("vjp", [&] { program = differentiate(program); });
  result.ops = weft::large_programs::count_ops(program.body);
  std::string text;
  result.others.measure("print", [&] { text = weft::ir::print(program); });
  result.others.measure("parse", [&] { program = weft::ir::parse(text); });
  if (options.roll) result.passes.measure("roll", [&] { weft::passes::find_pass("roll").run(program); });
  const weft::planning::CpuTarget target;
  auto measure = [&](const weft::passes::Pass& pass) {
    result.passes.measure(std::string(pass.name), [&] { pass.run(program); });
  };
  for (std::string_view name : weft::passes::compile_pipeline()) measure(weft::passes::find_pass(name));
  for (const weft::passes::Pass& pass : target.layout_passes()) measure(pass);
  weft::planning::Schedule schedule;
  result.passes.measure("lower", [&] { schedule = weft::planning::lower(program, target); });
  result.stages = schedule.plan.stage_count;
  result.buffers = std::ssize(schedule.plan.buffers);
  std::optional<weft::runtime::ArenaPlanner> planner;
  result.passes.measure("arena", [&] { planner.emplace(schedule.plan); });
  result.new_length_us = new_length_us(schedule.plan, *planner);
  if (options.compile) result.others.measure("LLVM", [&] { weft::jit::compile(schedule, ""); });
  return result;
}

/// For each phase the least time of several runs.
Result best_run(const Kind& kind, int64_t size, const Options& options) {
  Result best = run(kind, size, options);
  for (int64_t i = 1; i < options.repeats; ++i) {
    const Result again = run(kind, size, options);
    best.passes.take_less(again.passes);
    best.others.take_less(again.others);
    best.new_length_us = std::min(best.new_length_us, again.new_length_us);
  }
  return best;
}

/// The exponent with which `what` grows from the first to the last result.
template <typename F>
double exponent(const std::vector<Result>& results, F&& what) {
  const double ops = static_cast<double>(results.back().ops) / static_cast<double>(results.front().ops);
  return std::log(what(results.back()) / what(results.front())) / std::log(ops);
}

template <typename F>
void print_row(std::string_view name, const std::vector<Result>& results, F&& what) {
  std::string line = fmt::format("  {:<20}", name);
  for (const Result& result : results) line += fmt::format(" {:>10.2f}", what(result));
  if (results.size() > 1) line += fmt::format("   n^{:.2f}", exponent(results, what));
  fmt::print("{}\n", line);
}

void report(const Kind& kind, const std::vector<Result>& results, const Options& options) {
  std::string line = fmt::format("{:<22}", kind.name);
  for (const Result& result : results) line += fmt::format(" {:>10}", fmt::format("{} ops", result.ops));
  fmt::print("{}\n", line);
  if (options.details)
    for (const std::string& phase : results.back().passes.order())
      print_row(phase, results, [&](const Result& result) { return result.passes.at(phase); });
  print_row("all passes, ms", results, [](const Result& result) { return result.pass_time(); });
  print_row("new length, us", results, [](const Result& result) { return result.new_length_us; });
  for (const std::string& phase : results.back().others.order())
    print_row(phase + ", ms", results, [&](const Result& result) { return result.others.at(phase); });
  if (options.details) {
    print_row("stages", results, [](const Result& result) { return static_cast<double>(result.stages); });
    print_row("buffers", results, [](const Result& result) { return static_cast<double>(result.buffers); });
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times passes, lowering and plan on programs of several sizes.");
  app.add_option("--sizes", options.sizes, "ops of each program")->delimiter(',');
  app.add_option("--only", options.only, "the kinds of programs whose names contain this");
  app.add_option("--repeats", options.repeats, "runs of which the best counts");
  app.add_flag("--details", options.details, "each pass by itself");
  app.add_flag("--compile", options.compile, "LLVM too");
  app.add_flag("--roll", options.roll, "the pass roll first, as for what torch.compile traces");
  CLI11_PARSE(app, argc, argv);
  weft::mutable_settings().cache_dir.clear();  // without cached objects, so that LLVM's time is measured
  for (const Kind& kind : weft::large_programs::kinds()) {
    if (kind.name.find(options.only) == std::string_view::npos) continue;
    std::vector<Result> results;
    for (int64_t size : options.sizes) results.push_back(best_run(kind, size, options));
    report(kind, results, options);
  }
}
