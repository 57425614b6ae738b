// Stacks that share parts: random ones, after the pass `merge_stacks` and in machine code, against the interpreter.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "ir/builder.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "passes/pass_runner.h"
#include "programs.h"
#include "random_program.h"
#include "runtime/threads/team.h"

namespace weft::merge_stacks_test {
namespace {

using interpreter::Array;
using ir::Builder;
using ir::Dim;
using ir::OpCode;
using ir::ValueId;

const Dim kSteps = Dim::symbol("T"), kBatch = Dim::symbol("B");

/// A scan that yields two or three concatenations of some of five gates, and what is computed from their stacks.
class StackProgram {
 public:
  explicit StackProgram(uint64_t seed) : random_(seed), builder_(program_, program_.body) {}

  ir::Program make() {
    dtype_ = up_to(3) == 0 ? DType::kF64 : DType::kF32;
    width_ = std::vector<int64_t>{1, 5, 16, 20, 64}[static_cast<size_t>(up_to(4))];
    x_ = builder_.input({dtype_, {kSteps, kBatch, Dim(width_)}}, "x");
    ValueId h = builder_.input({dtype_, {kBatch, Dim(width_)}}, "h");
    for (int64_t i = 0; i < 3; ++i) {
      gates_.push_back(some_gates());
      columns_.push_back(width_ * static_cast<int64_t>(gates_.back().size()));
      weights_.push_back(builder_.input({dtype_, {Dim(columns_.back()), Dim(width_)}}, "w"));
    }
    loop_reads_ = up_to(3);
    const std::vector<ValueId> results =
        builder_.scan({h}, {x_}, kSteps, up_to(1) == 0,
                      [&](Builder& step, auto carries, auto xs) { return emit_step(step, carries[0], xs[0]); });
    returned_ = {results[0]};
    for (size_t i = 0; i < 3; ++i)
      for (int64_t reads = 1 + up_to(2); reads > 0; --reads) read(results[i + 1], i);
    builder_.ret(returned_);
    return std::move(program_);
  }

 private:
  int64_t up_to(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }

  std::vector<size_t> some_gates() {
    std::vector<size_t> all(5);
    std::iota(all.begin(), all.end(), size_t{0});
    std::ranges::shuffle(all, random_);
    all.resize(static_cast<size_t>(1 + up_to(3)));
    return all;
  }

  Builder::StepResults emit_step(Builder& step, ValueId h, ValueId x) {
    std::vector<ValueId> gates = {step.tanh(step.add(h, x)), step.mul(h, x)};
    gates.push_back(step.sigmoid(gates[1]));
    gates.push_back(step.sub(gates[0], h));
    gates.push_back(step.mul(gates[3], gates[2]));
    Builder::StepResults results;
    for (const auto& chosen : gates_) {
      std::vector<ValueId> parts;
      for (size_t gate : chosen) parts.push_back(gates[gate]);
      results.ys.push_back(step.concat(parts, 1));
    }
    ValueId next = step.tanh(gates[4]);
    for (size_t i = 0; i < static_cast<size_t>(loop_reads_); ++i)
      next = step.tanh(step.add(next, step.matmul(results.ys[i], weights_[i])));
    results.carries = {next};
    return results;
  }

  void read(ValueId stack, size_t i) {
    switch (up_to(7)) {
      case 0:
        return returned_.push_back(builder_.tanh(stack));
      case 1:
      case 2:
        return returned_.push_back(builder_.outer(stack, x_));
      case 3:
        return returned_.push_back(builder_.outer(x_, stack));
      case 4:
        return returned_.push_back(builder_.outer(stack, stack));
      case 5:
        return returned_.push_back(builder_.reduce_sum(stack, {0, 1}));
      default:
        return returned_.push_back(builder_.matmul(stack, weights_[i]));
    }
  }

  std::mt19937_64 random_;
  ir::Program program_;
  Builder builder_;
  DType dtype_ = DType::kF32;
  int64_t width_ = 0, loop_reads_ = 0;
  ValueId x_ = ir::kNoValue;
  std::vector<std::vector<size_t>> gates_;
  std::vector<int64_t> columns_;
  std::vector<ValueId> weights_, returned_;
};

std::vector<Array> run_engine(const ir::Program& program, const ir::Bindings& bindings, std::vector<Array>& inputs) {
  std::shared_ptr<const engine::Executable> executable = engine::compile(ir::print(program));
  std::vector<Array> outputs;
  for (ValueId id : program.body.results)
    outputs.emplace_back(program.type(id).dtype, interpreter::sizes_of(program.type(id).shape, bindings));
  std::vector<runtime::TensorRef> from, to;
  for (Array& input : inputs) from.push_back({input.bytes.data(), input.dtype, input.sizes});
  for (Array& output : outputs) to.push_back({output.bytes.data(), output.dtype, output.sizes});
  executable->run(from, to, runtime::own_team());
  return outputs;
}

void expect_close(const std::vector<Array>& found, const std::vector<Array>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    std::vector<double> x = found[i].to_doubles(), y = expected[i].to_doubles();
    double scale = 1;
    for (double v : y) scale = std::max(scale, std::abs(v));
    for (size_t k = 0; k < x.size(); ++k)
      ASSERT_NEAR(x[k], y[k], (found[i].dtype == DType::kF64 ? 1e-11 : 2e-5) * scale) << "result " << i << " at " << k;
  }
}

TEST(Share, LeavesResultsAsTheyAre) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const ir::Program program = StackProgram(seed).make();
    ir::verify(program);
    SCOPED_TRACE(ir::print(program));
    ir::Program shared = program;
    const std::string_view pass = "merge_stacks";
    passes::run_passes(shared, {&pass, 1});
    ir::verify(shared);
    changed += ir::print(shared) != ir::print(program);
    for (const ir::Bindings& bindings :
         {ir::Bindings{{"T", 3}, {"B", 2}}, {{"T", 0}, {"B", 3}}, {{"T", 2}, {"B", 9}}}) {
      std::vector<Array> inputs = testing::random_inputs(program, bindings, seed);
      const std::vector<Array> expected = interpreter::evaluate(program, inputs);
      expect_close(interpreter::evaluate(shared, inputs), expected);
      expect_close(run_engine(program, bindings, inputs), expected);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(changed, 10) << "too few programs have anything to share";
}

}  // namespace
}  // namespace weft::merge_stacks_test
