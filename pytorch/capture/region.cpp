#include "capture/region.h"

#include <algorithm>
#include <map>

#include "capture/aten_ops.h"
#include "ir/parser.h"
#include "ir/printer.h"
#include "ir/verifier.h"

namespace weft::capture {

namespace {

using Substitution = std::map<std::string, ir::Dim>;

ir::Dim substitute(const ir::Dim& dim, const Substitution& sizes) {
  ir::Dim result(dim.factor);
  for (const std::string& symbol : dim.symbols) {
    auto it = sizes.find(symbol);
    check(it != sizes.end(), "the called program's symbol {} is no input's dim", symbol);
    result = result * it->second;
  }
  return result;
}

ir::Type substitute(const ir::Type& type, const Substitution& sizes) {
  ir::Type result{type.dtype, {}};
  for (const ir::Dim& dim : type.shape) result.shape.push_back(substitute(dim, sizes));
  return result;
}

/// What each symbol of `callee` is for these inputs.
Substitution match(const ir::Program& callee, const ir::Program& caller, std::span<const ir::ValueId> inputs) {
  const std::vector<ir::ValueId>& args = callee.body.args;
  check(args.size() == inputs.size(), "the called program takes {} inputs, not {}", args.size(), inputs.size());
  Substitution sizes;
  for (size_t i = 0; i < args.size(); ++i) {
    const ir::Shape& shape = callee.type(args[i]).shape;
    const ir::Shape& actual = caller.type(inputs[i]).shape;
    check(shape.size() == actual.size(), "input {} of the called program has {} dims, not {}", i, shape.size(),
          actual.size());
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d].factor == 1 && shape[d].symbols.size() == 1) sizes.try_emplace(shape[d].symbols[0], actual[d]);
  }
  for (size_t i = 0; i < args.size(); ++i) {
    ir::Type want = substitute(callee.type(args[i]), sizes);
    const ir::Type& have = caller.type(inputs[i]);
    check(want == have, "input {} of the called program is {}, not {}", i, to_string(want), to_string(have));
  }
  return sizes;
}

/// Copies blocks of one program into another.
class Splice {
 public:
  Splice(const ir::Program& from, ir::Program& to, Substitution sizes)
      : from_(from), to_(to), sizes_(std::move(sizes)) {}

  void bind(ir::ValueId from, ir::ValueId to) { values_[from] = to; }
  ir::ValueId operator[](ir::ValueId id) const { return values_.at(id); }

  void append(const ir::Block& block, ir::Block& target) {
    for (const ir::Op& op : block.ops) target.ops.push_back(copy(op));
  }

 private:
  ir::ValueId define(ir::ValueId id) {
    return values_[id] = to_.new_value(substitute(from_.type(id), sizes_), from_.values[id].name);
  }

  ir::Op copy(const ir::Op& op) {
    ir::Op result{op.code, {}, {}, op.attrs, {}};
    for (auto& [name, attr] : result.attrs)
      if (auto* dim = std::get_if<ir::Dim>(&attr)) *dim = substitute(*dim, sizes_);
    for (ir::ValueId id : op.operands) result.operands.push_back(values_.at(id));
    for (const ir::Block& region : op.regions) {
      ir::Block& block = result.regions.emplace_back();
      for (ir::ValueId id : region.args) block.args.push_back(define(id));
      append(region, block);
      for (ir::ValueId id : region.results) block.results.push_back(values_.at(id));
    }
    for (ir::ValueId id : op.results) result.results.push_back(define(id));
    return result;
  }

  const ir::Program& from_;
  ir::Program& to_;
  Substitution sizes_;
  std::map<ir::ValueId, ir::ValueId> values_;
};

}  // namespace

ir::Type make_type(std::string_view dtype, const std::vector<Size>& sizes) {
  std::optional<DType> known = dtype_named(dtype);
  check(known.has_value(), "no dtype is named '{}'", dtype);
  ir::Type type{*known, {}};
  for (const auto& [factor, symbols] : sizes) {
    ir::Dim dim(factor);
    for (const std::string& symbol : symbols) dim = dim * ir::Dim::symbol(symbol);
    type.shape.push_back(std::move(dim));
  }
  return type;
}

Value Region::input(const ir::Type& type) { return {ir::Builder(program_, program_.body).input(type)}; }

std::vector<Value> Region::inline_program(std::string_view text, std::span<const Value> inputs) {
  std::vector<ir::ValueId> ids;
  for (Value input : inputs) ids.push_back(input.id);
  ir::Builder builder(program_, program_.body);
  std::vector<Value> results;
  for (ir::ValueId id : capture::inline_program(builder, ir::parse(text), ids)) results.push_back({id});
  return results;
}

Value Region::aten(std::string_view op, const std::vector<Argument>& arguments, const ir::Type& result) {
  ir::Builder builder(program_, program_.body);
  return {import_aten({builder, op, arguments, result})};
}

std::string Region::finish(std::span<const Value> outputs) {
  program_.name = "region";
  program_.body.results.clear();
  for (Value value : outputs) program_.body.results.push_back(value.id);
  ir::verify(program_);
  return ir::print(program_, /*canonical=*/true);
}

std::vector<ir::ValueId> inline_program(ir::Builder& builder, const ir::Program& callee,
                                        std::span<const ir::ValueId> inputs) {
  Splice splice(callee, builder.program(), match(callee, builder.program(), inputs));
  for (size_t i = 0; i < inputs.size(); ++i) splice.bind(callee.body.args[i], inputs[i]);
  splice.append(callee.body, builder.block());
  std::vector<ir::ValueId> results;
  for (ir::ValueId id : callee.body.results) results.push_back(splice[id]);
  return results;
}

bool is_elementwise(std::string_view text) {
  ir::Program program = ir::parse(text);
  std::vector<ir::ValueId> same_everywhere;
  for (const ir::Op& op : program.body.ops) {
    const bool broadcasts_constant = op.code == ir::OpCode::kBroadcast &&
                                     std::ranges::find(same_everywhere, op.operands[0]) != same_everywhere.end();
    if (op.code == ir::OpCode::kConstant || broadcasts_constant) {
      same_everywhere.push_back(op.results[0]);
    } else if (ir::info(op.code).op_class != ir::OpClass::kElementwise) {
      return false;
    }
  }
  return true;
}

std::string keep_outputs(std::string_view text, const std::vector<bool>& keep) {
  ir::Program program = ir::parse(text);
  std::vector<ir::ValueId>& results = program.body.results;
  check(keep.size() == results.size(), "the program has {} outputs, not {}", results.size(), keep.size());
  std::vector<ir::ValueId> kept;
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i]) kept.push_back(results[i]);
  results = std::move(kept);
  return ir::print(program);
}

}  // namespace weft::capture
