#include "ir/verifier.h"

#include <algorithm>
#include <set>

namespace weft::ir {
namespace {

enum class State : uint8_t { kUndefined, kVisible, kEnded };

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program), states_(program.values.size(), State::kUndefined) {}

  void run() {
    verify_block(program_.body, 0);
    check_donations();
    check_symbols();
  }

 private:
  std::string spell(ValueId id) const {
    if (id >= program_.values.size()) return fmt::format("value {} of {}", id, program_.values.size());
    const std::string& name = program_.values[id].name;
    return name.empty() ? fmt::format("value {}", id) : "%" + name;
  }

  void define(ValueId id) {
    check(id < states_.size(), "{} does not exist", spell(id));
    check(states_[id] == State::kUndefined, "{} is defined twice", spell(id));
    states_[id] = State::kVisible;
    check_type(id);
  }

  void check_type(ValueId id) {
    const Type& type = program_.type(id);
    check(type.rank() <= kMaxRank, "{}: has {} dims; at most {} are supported", spell(id), type.rank(), kMaxRank);
    for (const Dim& dim : type.shape) check_dim(dim);
  }

  void check_dim(const Dim& dim) {
    auto fits = [](int64_t number) { return number >= -kMaxDim && number <= kMaxDim; };
    check(!dim.is_always_negative() && fits(dim.number()) &&
              std::ranges::all_of(dim.terms(), fits, [](const Dim::Term& term) { return term.factor; }),
          "the size {} is outside 0..2^62", to_string(dim));
    dim.add_symbols(symbols_);
  }

  void use(ValueId id, std::string_view user) const {
    check(id < states_.size(), "{}: {} does not exist", user, spell(id));
    check(states_[id] != State::kUndefined, "{}: {} is used before it is defined", user, spell(id));
    check(states_[id] != State::kEnded, "{}: {} is used outside its region", user, spell(id));
  }

  void verify_block(const Block& block, int64_t depth) {
    check(depth <= kMaxRegionDepth, "regions are nested more than {} deep", kMaxRegionDepth);
    for (ValueId arg : block.args) define(arg);
    for (const Op& op : block.ops) verify_op(op, depth);
    for (ValueId result : block.results) use(result, depth == 0 ? "return" : "yield");
    if (depth > 0) end(block);
  }

  void end(const Block& block) {
    for (ValueId arg : block.args) states_[arg] = State::kEnded;
    for (const Op& op : block.ops)
      for (ValueId result : op.results) states_[result] = State::kEnded;
  }

  void verify_op(const Op& op, int64_t depth) {
    std::string_view name = info(op.code).name;
    for (ValueId operand : op.operands) use(operand, name);
    for (const Block& region : op.regions) verify_block(region, depth + 1);
    for (const auto& [attr, value] : op.attrs)
      if (is_bound(attr) || attr == "length" || attr == "rows" || attr == "packed")
        if (const Dim* dim = std::get_if<Dim>(&value)) check_dim(*dim);
    if (op.code == OpCode::kSize && op.has("of"))
      if (const Dim* dim = std::get_if<Dim>(&op.attrs.at("of"))) dim->add_symbols(symbols_);
    std::vector<Type> declared;
    for (ValueId result : op.results) {
      check(result < states_.size(), "{}: {} does not exist", name, spell(result));
      declared.push_back(program_.type(result));
    }
    std::vector<Type> types = infer_types(program_, op, declared);
    check(types.size() == op.results.size(), "{}: gives {} results, not {}", name, types.size(), op.results.size());
    for (size_t i = 0; i < types.size(); ++i) {
      check(types[i] == declared[i], "{}: gives {}, but {} is {}", name, to_string(types[i]), spell(op.results[i]),
            to_string(declared[i]));
      define(op.results[i]);
    }
  }

  void check_donations() const {
    const std::vector<ValueId>&inputs = program_.body.args, &results = program_.body.results;
    std::set<size_t> donated;
    for (size_t i = 0; i < program_.donations.size(); ++i) {
      const auto [input, result] = program_.donations[i];
      const bool in_order = i == 0 || program_.donations[i - 1].result < result;
      check(in_order && result < results.size() && input < inputs.size(),
            "return: result {} cannot take the memory of input {}", result, input);
      check(donated.insert(input).second, "return: the memory of {} is given to two results", spell(inputs[input]));
      check(program_.type(results[result]) == program_.type(inputs[input]),
            "return: {} is {}, and cannot take the memory of {}, which is {}", spell(results[result]),
            to_string(program_.type(results[result])), spell(inputs[input]), to_string(program_.type(inputs[input])));
    }
  }

  void check_symbols() const {
    std::set<std::string> bound;
    for (ValueId input : program_.body.args)
      for (const Dim& dim : program_.type(input).shape)
        if (dim.is_symbol()) bound.insert(dim.name());
    for (const std::string& symbol : symbols_)
      check(bound.contains(symbol), "the symbol {} is not the size of any input's dim, so no call could bind it",
            symbol);
  }

  const Program& program_;
  std::vector<State> states_;
  std::set<std::string> symbols_;
};

}  // namespace

void verify(const Program& program) { Verifier(program).run(); }

}  // namespace weft::ir
