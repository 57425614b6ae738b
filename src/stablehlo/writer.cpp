#include "stablehlo/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "stablehlo/lowerings.h"
#include "stablehlo/write.h"

namespace weft::stablehlo {
namespace {

using ir::Block;
using ir::Op;
using ir::ValueId;

/// The values that the blocks read and do not define, each once, in order of their first use.
class OuterReads {
 public:
  void add(const Block& block) {
    defined_.insert(block.args.begin(), block.args.end());
    for (const Op& op : block.ops) {
      for (ValueId id : op.operands) read(id);
      for (const Block& region : op.regions) add(region);
      defined_.insert(op.results.begin(), op.results.end());
    }
    for (ValueId id : block.results) read(id);
  }
  const std::vector<ValueId>& found() const { return found_; }

 private:
  void read(ValueId id) {
    if (!defined_.contains(id) && seen_.insert(id).second) found_.push_back(id);
  }

  std::set<ValueId> defined_, seen_;
  std::vector<ValueId> found_;
};

/// A name of MLIR's: letters, digits and `_`.
std::string symbol_of(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) ? "_" + name : name;
}

/// `f()` or `(f, g)`, as a function's result types are written.
std::string results_text(std::span<const Tensor> results) {
  return results.size() == 1 ? to_string(results[0].type) : "(" + types_of(results) + ")";
}

}  // namespace

Writer::Writer(const ir::Program& program, const ir::Bindings& bindings)
    : program_(program), bindings_(bindings), values_(program.values.size()) {}

int64_t Writer::size(const ir::Dim& dim) const { return ir::evaluate(dim, bindings_); }

TensorType Writer::type(ValueId id) const {
  const ir::Type& type = program_.type(id);
  TensorType result{type.dtype, {}};
  for (const ir::Dim& dim : type.shape) result.sizes.push_back(size(dim));
  return result;
}

const Tensor& Writer::value(ValueId id) const {
  if (auto refused = refused_.find(id); refused != refused_.end())
    user_error("stablehlo: the program reads a result of {}", refused->second);
  internal_check(values_[id].has_value(), "stablehlo: value {} is not written", id);
  return *values_[id];
}

void Writer::set(ValueId id, Tensor tensor) {
  internal_check(tensor.type == type(id), "stablehlo: a value of type {} is written as {}",
                 ir::to_string(program_.type(id)), to_string(tensor.type));
  values_[id] = std::move(tensor);
}

std::vector<Tensor> Writer::values(std::span<const ValueId> ids) const {
  std::vector<Tensor> found;
  for (ValueId id : ids) found.push_back(value(id));
  return found;
}

void Writer::write_ops(const Block& block) {
  for (const Op& op : block.ops) write_op(op);
}

void Writer::write_op(const Op& op) {
  const Lowering lowering = lowering_of(op.code);
  check(lowering != nullptr, "stablehlo: the op '{}' has no lowering", info(op.code).name);
  lowering(Site{*this, op});
}

std::string Writer::arguments() {
  std::string text;
  for (size_t i = 0; i < program_.body.args.size(); ++i) {
    const ValueId id = program_.body.args[i];
    set(id, {fmt::format("%arg{}", i), type(id)});
    text += fmt::format("{}{}: {}", i ? ", " : "", value(id).name, to_string(value(id).type));
    for (const ir::Donation& donation : program_.donations)
      if (donation.input == i) text += fmt::format(" {{tf.aliasing_output = {} : i32}}", donation.result);
  }
  return text;
}

std::string Writer::run() {
  // The head is written last, since it contains the results' types.
  const std::string inputs = arguments();
  emitter_.indent();
  emitter_.indent();
  write_ops(program_.body);
  const std::vector<Tensor> results = values(program_.body.results);
  emitter_.line(results.empty() ? "return" : fmt::format("return {} : {}", names_of(results), types_of(results)));
  return fmt::format("module @{} {{\n  func.func public @main({}) -> {} {{\n{}  }}\n}}\n", symbol_of(program_.name),
                     inputs, results_text(results), emitter_.take());
}

std::vector<Tensor> Writer::write_while(std::span<const Tensor> own, std::span<const Block* const> reads,
                                        const Part& condition, const Part& body) {
  OuterReads outer;
  for (const Block* block : reads) outer.add(*block);
  std::vector<Tensor> inits(own.begin(), own.end());
  for (const Tensor& value : values(outer.found())) inits.push_back(value);
  for (const StepRows& rows : rows_) inits.push_back(rows.count);

  std::vector<Tensor> inside;
  std::string pairs;
  for (const Tensor& init : inits) {
    inside.push_back({emitter_.new_name(), init.type});
    pairs += fmt::format("{}{} = {}", pairs.empty() ? "" : ", ", inside.back().name, init.name);
  }
  const std::string name = emitter_.new_name();
  emitter_.line(fmt::format("{}:{} = stablehlo.while({}) : {}", name, inits.size(), pairs, types_of(inits)));

  size_t next = own.size();
  for (ValueId id : outer.found()) values_[id] = inside[next++];
  for (StepRows& rows : rows_) rows.count = inside[next++];
  const std::span<const Tensor> own_inside = std::span(inside).first(own.size());
  const std::span<const Tensor> passed = std::span(inside).subspan(own.size());
  auto write_part = [&](std::string_view begin, const Part& part, bool yields_passed) {
    emitter_.line(begin);
    emitter_.indent();
    std::vector<Tensor> yielded = part(own_inside);
    if (yields_passed) yielded.insert(yielded.end(), passed.begin(), passed.end());
    emitter_.line(fmt::format("stablehlo.return {} : {}", names_of(yielded), types_of(yielded)));
    emitter_.dedent();
  };
  write_part("cond {", condition, false);
  write_part("} do {", body, true);
  emitter_.line("}");

  next = own.size();
  for (ValueId id : outer.found()) values_[id] = inits[next++];
  for (StepRows& rows : rows_) rows.count = inits[next++];
  std::vector<Tensor> results;
  for (size_t i = 0; i < own.size(); ++i) results.push_back({fmt::format("{}#{}", name, i), own[i].type});
  return results;
}

const StepRows* Writer::step_rows_of(ValueId id) const {
  for (const StepRows& rows : rows_)
    if (ir::has_rows(program_.type(id), rows.ragged)) return &rows;
  return nullptr;
}

Tensor Writer::masked(const StepRows& rows, const Tensor& tensor, const Tensor& rest) {
  const TensorType numbers{DType::kI64, tensor.type.sizes};
  const Tensor count = emitter_.broadcast(rows.count, tensor.type.sizes, {});
  return emitter_.select(emitter_.compare("LT", emitter_.iota(numbers, 0), count), tensor, rest);
}

Tensor Writer::zero_beyond(ValueId id) {
  const Tensor whole = value(id);
  const StepRows* rows = step_rows_of(id);
  return rows != nullptr ? masked(*rows, whole, emitter_.like(0, whole)) : whole;
}

std::string write(const ir::Program& program, const ir::Bindings& bindings) { return Writer(program, bindings).run(); }

}  // namespace weft::stablehlo
