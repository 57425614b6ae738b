#include "importer/compose.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/inline.h"
#include "ir/verifier.h"

namespace weft::importer {

using ir::ValueId;

namespace {

/// A symbol that the program doesn't use.
ir::Dim fresh_symbol(const ir::Program& program, std::string name) {
  auto taken = [&](const std::string& symbol) {
    return std::ranges::any_of(program.values, [&](const ir::Value& value) {
      return std::ranges::any_of(value.type.shape, [&](const ir::Dim& dim) { return dim.mentions(symbol); });
    });
  };
  while (taken(name)) name += "_";
  return ir::Dim::symbol(name);
}

/// A step, and the inputs and results of a scan over it.
class StepProgram {
 public:
  /// The inputs behind the xs are `same` values, then `drawn` further xs, then captured values.
  StepProgram(ir::Program step, int64_t carries, int64_t xs, int64_t same = 0, int64_t drawn = 0)
      : step_(std::move(step)), carries_(carries), xs_(xs) {
    auto inputs = static_cast<int64_t>(step_.body.args.size());
    auto results = static_cast<int64_t>(step_.body.results.size());
    check(carries >= 0 && xs >= 0 && carries + xs <= inputs,
          "scan_program: {} carries and {} xs, but the step takes {}", carries, xs, inputs);
    check(carries <= results, "scan_program: {} carries, but the step gives {} results", carries, results);
    check(same >= 0 && drawn >= 0 && carries + xs + same + drawn <= inputs,
          "scan_program: {} values and {} random numbers behind {} carries and {} xs, but the step takes {}", same,
          drawn, carries, xs, inputs);
    const auto first = step_.body.args.begin() + carries + xs;
    std::rotate(first, first + same, first + same + drawn);
    xs_ += drawn;
  }

  const ir::Program& step() const { return step_; }

  /// Declares the inputs of a program whose stacks have `leading` as their first dims.
  void declare(ir::Builder& builder, const ir::Shape& leading) {
    for (int64_t i = 0; i < carries_; ++i) inits_.push_back(builder.input(type(i)));
    for (int64_t i = carries_; i < carries_ + xs_; ++i) stacks_.push_back(builder.input(stacked(type(i), leading)));
    if (xs_ == 0) stacks_.push_back(builder.input(stacked({DType::kF32, {ir::Dim(0)}}, leading)));
    for (size_t i = static_cast<size_t>(carries_ + xs_); i < step_.body.args.size(); ++i)
      captured_.push_back(builder.input(step_.type(step_.body.args[i])));
  }

  const std::vector<ValueId>& inits() const { return inits_; }
  const std::vector<ValueId>& stacks() const { return stacks_; }

  /// Inlines one step where `builder` builds.
  ir::Builder::StepResults take(ir::Builder& builder, std::span<const ValueId> carries, std::span<const ValueId> xs) {
    std::vector<ValueId> inputs(carries.begin(), carries.end());
    if (xs_ > 0) inputs.insert(inputs.end(), xs.begin(), xs.end());
    inputs.insert(inputs.end(), captured_.begin(), captured_.end());
    std::vector<ValueId> results = inline_program(builder, step_, inputs);
    return {{results.begin(), results.begin() + carries_}, {results.begin() + carries_, results.end()}};
  }

 private:
  ir::Type type(int64_t input) const { return step_.type(step_.body.args[static_cast<size_t>(input)]); }

  static ir::Type stacked(ir::Type type, const ir::Shape& leading) {
    type.shape.insert(type.shape.begin(), leading.begin(), leading.end());
    return type;
  }

  ir::Program step_;
  int64_t carries_, xs_;
  std::vector<ValueId> inits_, stacks_, captured_;
};

}  // namespace

ir::Program verified(ir::Program program) {
  ir::verify(program);
  for (ir::Value& value : program.values) value.name.clear();
  return program;
}

ir::Program scan_program(ir::Program of, int64_t carries, int64_t xs, bool reverse, int64_t same, int64_t drawn) {
  StepProgram step(std::move(of), carries, xs, same, drawn);
  ir::Program program;
  program.name = "scan";
  ir::Builder builder(program, program.body);
  const ir::Dim length = fresh_symbol(step.step(), "T");
  step.declare(builder, {length});
  auto body = [&](ir::Builder& inner, std::span<const ValueId> now, std::span<const ValueId> slices) {
    return step.take(inner, now, slices);
  };
  builder.ret(builder.scan(step.inits(), step.stacks(), length, reverse, body));
  return verified(std::move(program));
}

ir::Program checkpointed_scan_program(ir::Program of, int64_t carries, int64_t xs, bool reverse) {
  StepProgram step(std::move(of), carries, xs);
  ir::Program program;
  program.name = "checkpointed_scan";
  ir::Builder builder(program, program.body);
  const ir::Dim chunks = fresh_symbol(step.step(), "T"), length = fresh_symbol(step.step(), "K");
  step.declare(builder, {chunks, length});
  auto body = [&](ir::Builder& inner, std::span<const ValueId> now, std::span<const ValueId> slices) {
    return step.take(inner, now, slices);
  };
  auto chunk = [&](ir::Builder& inner, std::span<const ValueId> now, std::span<const ValueId> slices) {
    std::vector<ValueId> results =
        inner.scan({now.begin(), now.end()}, {slices.begin(), slices.end()}, length, reverse, body);
    ir::Builder::StepResults next;
    next.carries.assign(results.begin(), results.begin() + carries);
    next.ys.assign(results.begin() + carries, results.end());
    return next;
  };
  builder.ret(builder.scan(step.inits(), step.stacks(), chunks, reverse, chunk));
  program.body.ops.back().attrs.emplace(ir::kCheckpoint, true);
  return verified(std::move(program));
}

}  // namespace weft::importer
