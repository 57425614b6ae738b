#include "importer/compose_control.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "importer/compose.h"
#include "ir/inline.h"

namespace weft::importer {

using ir::Builder;
using ir::Dim;
using ir::Program;
using ir::SymbolSizes;
using ir::Type;
using ir::ValueId;

namespace {

void collect_symbols(const Program& program, std::set<std::string>& symbols) {
  for (const ir::Value& value : program.values)
    for (const Dim& dim : value.type.shape) dim.add_symbols(symbols);
}

/// Two programs that are inlined into one. Their first inputs, the shared ones, are the same values.
class Pair {
 public:
  Pair(std::string_view what, Program first, Program second, int64_t shared, int64_t captured_by_first,
       int64_t captured_by_second)
      : what_(what), programs_{std::move(first), std::move(second)}, shared_(static_cast<size_t>(shared)) {
    const int64_t captured[] = {captured_by_first, captured_by_second};
    for (size_t i = 0; i < 2; ++i)
      check(shared >= 0 && captured[i] >= 0 &&
                shared + captured[i] == static_cast<int64_t>(programs_[i].body.args.size()),
            "{}: a program takes {} inputs, not {} and {}", what, programs_[i].body.args.size(), shared, captured[i]);
    for (const Program& program : programs_) collect_symbols(program, taken_);
    unify();
  }

  /// A symbol that neither program uses.
  Dim fresh(std::string name) {
    while (!taken_.insert(name).second) name += "_";
    return Dim::symbol(name);
  }

  std::vector<ValueId> declare_shared(Builder& builder) const { return declare(builder, 0, 0, shared_); }
  /// Declares the captured inputs of the first program, then those of the second.
  void declare_captured(Builder& builder) {
    for (size_t i = 0; i < 2; ++i) captured_[i] = declare(builder, i, shared_, programs_[i].body.args.size());
  }

  /// Inlines one of the programs where `builder` builds.
  std::vector<ValueId> run(Builder& builder, size_t which, std::span<const ValueId> shared) const {
    std::vector<ValueId> inputs(shared.begin(), shared.end());
    inputs.insert(inputs.end(), captured_[which].begin(), captured_[which].end());
    return inline_program(builder, programs_[which], inputs);
  }

 private:
  const Type& type(size_t which, size_t input) const {
    return programs_[which].type(programs_[which].body.args[input]);
  }

  std::vector<ValueId> declare(Builder& builder, size_t which, size_t begin, size_t end) const {
    std::vector<ValueId> inputs;
    for (size_t i = begin; i < end; ++i) inputs.push_back(builder.input(substitute(type(which, i), sizes_[which])));
    return inputs;
  }

  /// Unifies the symbols of the two programs. Each was traced by itself, so a size may be a symbol in one and a number
  /// in the other, or have different names. A symbol of the second program that no shared input has stays its own.
  void unify() {
    for (size_t i = 0; i < shared_; ++i) {
      check(type(0, i).rank() == type(1, i).rank() && type(0, i).dtype == type(1, i).dtype,
            "{}: value {} is {} in one program and {} in the other", what_, i, to_string(type(0, i)),
            to_string(type(1, i)));
      for (size_t d = 0; d < type(0, i).shape.size(); ++d) {
        const Dim& one = type(0, i).shape[d];
        const Dim& other = type(1, i).shape[d];
        if (one.is_symbol() && other.is_constant()) sizes_[0].emplace(one.name(), other);
      }
    }
    std::set<std::string> symbols;
    collect_symbols(programs_[0], symbols);
    for (const std::string& symbol : symbols) sizes_[0].emplace(symbol, Dim::symbol(symbol));
    for (size_t i = 0; i < shared_; ++i)
      for (size_t d = 0; d < type(0, i).shape.size(); ++d)
        if (const Dim& other = type(1, i).shape[d]; other.is_symbol())
          sizes_[1].emplace(other.name(), substitute(type(0, i).shape[d], sizes_[0]));
    std::set<std::string> others;
    collect_symbols(programs_[1], others);
    for (const std::string& symbol : others)
      if (!sizes_[1].contains(symbol))
        sizes_[1].emplace(symbol, symbols.contains(symbol) ? fresh(symbol) : Dim::symbol(symbol));
  }

  std::string_view what_;
  Program programs_[2];
  size_t shared_;
  SymbolSizes sizes_[2];
  std::vector<ValueId> captured_[2];
  std::set<std::string> taken_;
};

}  // namespace

ir::Program while_program(ir::Program condition, ir::Program body, int64_t carries, int64_t captured_by_condition,
                          int64_t captured_by_body) {
  Pair parts("while_program", std::move(condition), std::move(body), carries, captured_by_condition, captured_by_body);
  Program program;
  program.name = "while_loop";
  Builder builder(program, program.body);
  std::vector<ValueId> inits = parts.declare_shared(builder);
  parts.declare_captured(builder);
  auto part = [&](size_t which) {
    return [&parts, which](Builder& inner, std::span<const ValueId> now) { return parts.run(inner, which, now); };
  };
  builder.ret(builder.while_loop(inits, part(0), part(1)));
  return verified(std::move(program));
}

ir::Program bounded_while_program(ir::Program condition, ir::Program body, int64_t carries,
                                  int64_t captured_by_condition, int64_t captured_by_body) {
  Pair parts("bounded_while_program", std::move(condition), std::move(body), carries, captured_by_condition,
             captured_by_body);
  Program program;
  program.name = "bounded_while_loop";
  Builder builder(program, program.body);
  std::vector<ValueId> inits = parts.declare_shared(builder);
  const Dim length = parts.fresh("T");
  ValueId steps = builder.input({DType::kF32, {length, Dim(0)}});
  parts.declare_captured(builder);
  auto step = [&](Builder& inner, std::span<const ValueId> now, std::span<const ValueId>) {
    std::vector<ValueId> holds = parts.run(inner, 0, now);
    check(holds.size() == 1, "bounded_while_program: the condition gives {} results, not one", holds.size());
    auto take = [&](Builder& branch) { return parts.run(branch, 1, now); };
    auto leave = [&](Builder&) { return std::vector<ValueId>(now.begin(), now.end()); };
    return Builder::StepResults{inner.cond(holds[0], take, leave), {}};
  };
  builder.ret(builder.scan(inits, {steps}, length, /*reverse=*/false, step));
  return verified(std::move(program));
}

ir::Program cond_program(ir::Program yes, ir::Program no, int64_t operands, int64_t captured_by_yes,
                         int64_t captured_by_no) {
  Pair parts("cond_program", std::move(yes), std::move(no), operands, captured_by_yes, captured_by_no);
  Program program;
  program.name = "cond";
  Builder builder(program, program.body);
  ValueId predicate = builder.input({DType::kBool, {}});
  std::vector<ValueId> shared = parts.declare_shared(builder);
  parts.declare_captured(builder);
  auto branch = [&](size_t which) {
    return [&parts, &shared, which](Builder& inner) { return parts.run(inner, which, shared); };
  };
  builder.ret(builder.cond(predicate, branch(0), branch(1)));
  return verified(std::move(program));
}

}  // namespace weft::importer
