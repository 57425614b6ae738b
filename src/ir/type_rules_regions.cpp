#include "ir/type_rule_checks.h"

namespace weft::ir::type_rules {

namespace {

std::optional<Ragged> ragged_of(const RuleInput& in, const Dim& length) {
  if (!in.op.has("rows") && !in.op.has("packed")) return std::nullopt;
  const Dim& rows = required<Dim>(in, "rows", "a symbol");
  const Dim& packed = required<Dim>(in, "packed", "a symbol");
  check(rows.is_symbol() && packed.is_symbol(), "scan: ragged rows are {} of {}, but both must be symbols",
        to_string(rows), to_string(packed));
  check(are_ragged_sizes(rows, packed, length),
        "scan: the rows {}, the packed rows {} and the length {} of a ragged scan must be different", to_string(rows),
        to_string(packed), to_string(length));
  check(!in.op.operands.empty(), "scan: a ragged scan needs its batch sizes as an operand");
  Ragged ragged{in.op.operands.back(), rows, packed};
  const Type& type = in.program.type(ragged.batch_sizes);
  check(type == Type{DType::kI64, {length}}, "scan: batch sizes must be {}, not {}",
        to_string(Type{DType::kI64, {length}}), to_string(type));
  return ragged;
}

/// In a ragged region every step has another number of rows. Code generation lays memory out for a leading dim of rows
/// only: it refuses `f32[2*B,8]` and `f32[8,B]`.
void check_rows(const Program& program, const Block& region, const Ragged& ragged) {
  auto check_value = [&](ValueId id) {
    Type type = program.type(id);
    if (has_rows(type, ragged)) type.shape.erase(type.shape.begin());
    check(!mentions_rows(type, ragged),
          "scan: in a ragged scan its rows {} may only be a leading dim, but a value is {}", to_string(ragged.rows),
          to_string(program.type(id)));
  };
  for (ValueId id : region.args) check_value(id);
  for (const Op& op : region.ops) {
    for (ValueId id : op.operands) check_value(id);
    for (ValueId id : op.results) check_value(id);
    for (const auto& [name, attr] : op.attrs)
      if (const Dim* dim = std::get_if<Dim>(&attr))
        check(!mentions_rows(Type{DType::kF32, {*dim}}, ragged),
              "scan: the rows {} of a ragged scan can't be the {} of one inside", to_string(ragged.rows), name);
    for (const Block& inner : op.regions) check_rows(program, inner, ragged);
  }
  for (ValueId id : region.results) check_value(id);
}

void check_carries(const RuleInput& in, const Block& region, size_t carries) {
  for (size_t i = 0; i < carries; ++i) {
    const Type& init = in.operand(i);
    const Type& arg = in.program.type(region.args[i]);
    const Type& out = in.program.type(region.results[i]);
    check(arg == init, "scan: carry {} begins as {}, but the region takes {}", i, to_string(init), to_string(arg));
    check(out == arg, "scan: carry {} comes in as {} but goes out as {}", i, to_string(arg), to_string(out));
  }
}

void check_xs(const RuleInput& in, const Block& region, size_t carries, const Dim& length,
              const std::optional<Ragged>& ragged) {
  for (size_t i = carries; i < region.args.size(); ++i) {
    const Type& x = in.operand(i);
    bool packed = ragged && x.rank() >= 1 && x.shape[0] == ragged->packed;
    check(packed || (x.rank() >= 1 && x.shape[0] == length), "scan: its length is {}{}, but an xs operand is {}",
          to_string(length), ragged ? " and its packed rows are " + to_string(ragged->packed) : "", to_string(x));
    check(!ragged || !mentions_rows(x, *ragged),
          "scan: rows of a ragged scan come packed as {}, but an xs operand is {}",
          ragged ? to_string(ragged->packed) : "", to_string(x));
    Type step = step_of(x, ragged);
    check(in.program.type(region.args[i]) == step, "scan: a step of {} is {}, but the region takes {}", to_string(x),
          to_string(step), to_string(in.program.type(region.args[i])));
  }
}

}  // namespace

std::vector<Type> scan(const RuleInput& in) {
  in.allow({"carries", "reverse", "length", "rows", "packed"});
  in.flag("reverse");
  const Dim& length = required<Dim>(in, "length", "a dim");
  std::optional<Ragged> ragged = ragged_of(in, length);
  int64_t count = in.integer("carries");
  check(in.op.regions.size() == 1, "scan: needs one region, but has {}", in.op.regions.size());
  const Block& region = in.op.regions[0];
  size_t operands = in.op.operands.size() - (ragged ? 1 : 0);
  check(count >= 0 && count <= static_cast<int64_t>(operands), "scan: {} carries, but {} operands", count, operands);
  check(region.args.size() == operands, "scan: has {} operands, but its region takes {}", operands, region.args.size());
  auto carries = static_cast<size_t>(count);
  check(region.results.size() >= carries, "scan: {} carries, but the region yields {} values", carries,
        region.results.size());
  check_carries(in, region, carries);
  check_xs(in, region, carries, length, ragged);
  if (ragged) check_rows(in.program, region, *ragged);
  std::vector<Type> types;
  for (size_t i = 0; i < region.results.size(); ++i) {
    const Type& type = in.program.type(region.results[i]);
    types.push_back(i < carries ? type : stacked(type, length, ragged));
  }
  return types;
}

std::vector<Type> cond(const RuleInput& in) {
  in.allow({});
  check(in.operand(0) == Type{DType::kBool, {}}, "cond: its predicate must be bool[], not {}",
        to_string(in.operand(0)));
  check(in.op.regions.size() == 2, "cond: needs two regions, but has {}", in.op.regions.size());
  const Block& yes = in.op.regions[0];
  const Block& no = in.op.regions[1];
  check(yes.args.empty() && no.args.empty(), "cond: its regions take no arguments");
  check(yes.results.size() == no.results.size(), "cond: one region yields {} values, the other {}", yes.results.size(),
        no.results.size());
  std::vector<Type> types;
  for (size_t i = 0; i < yes.results.size(); ++i) {
    const Type& type = in.program.type(yes.results[i]);
    const Type& other = in.program.type(no.results[i]);
    check(type == other, "cond: value {} is {} in one region and {} in the other", i, to_string(type),
          to_string(other));
    types.push_back(type);
  }
  return types;
}

std::vector<Type> while_loop(const RuleInput& in) {
  in.allow({});
  check(in.op.regions.size() == 2, "while: needs two regions, but has {}", in.op.regions.size());
  const Block& condition = in.op.regions[0];
  const Block& body = in.op.regions[1];
  size_t carries = in.op.operands.size();
  check(condition.results.size() == 1 && in.program.type(condition.results[0]) == Type{DType::kBool, {}},
        "while: its condition must yield one bool[]{}",
        condition.results.size() == 1 ? ", not " + to_string(in.program.type(condition.results[0]))
                                      : fmt::format(", not {} values", condition.results.size()));
  check(condition.args.size() == carries && body.args.size() == carries && body.results.size() == carries,
        "while: {} carries go in, but its regions take {} and {} and yield {}", carries, condition.args.size(),
        body.args.size(), body.results.size());
  std::vector<Type> types;
  for (size_t i = 0; i < carries; ++i) {
    const Type& init = in.operand(i);
    for (const Block& region : in.op.regions)
      check(in.program.type(region.args[i]) == init, "while: carry {} begins as {}, but a region takes {}", i,
            to_string(init), to_string(in.program.type(region.args[i])));
    const Type& out = in.program.type(body.results[i]);
    check(out == init, "while: carry {} comes in as {} but goes out as {}", i, to_string(init), to_string(out));
    types.push_back(init);
  }
  return types;
}

std::vector<Type> external(const RuleInput& in) {
  in.allow({"call", "vjp"});
  required<std::string>(in, "call", "a text");
  if (in.op.has("vjp")) required<std::string>(in, "vjp", "a text");
  check(!in.declared.empty(), "extern: the types of its results must be declared");
  return in.declared;
}

std::vector<Type> custom_vjp(const RuleInput& in) {
  in.allow({"inputs", "vjp", "refuses", "linear", "hook"});
  const bool refuses = in.op.has("refuses");
  check(refuses != in.op.has("vjp"), "custom_vjp: takes either 'vjp' or 'refuses'");
  required<std::string>(in, refuses ? "refuses" : "vjp", "a text");
  const int64_t inputs = in.integer("inputs");
  const auto operands = static_cast<int64_t>(in.op.operands.size());
  check(inputs >= 0 && inputs < operands, "custom_vjp: {} inputs, but {} operands", inputs, operands);
  std::vector<Type> types;
  for (int64_t i = inputs; i < operands; ++i) types.push_back(in.operand(static_cast<size_t>(i)));
  return types;
}

}  // namespace weft::ir::type_rules
