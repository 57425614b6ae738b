#include "passes/rolling/op_sequence.h"

#include <unordered_map>

#include "passes/rolling/likeness.h"

namespace weft::passes {

using ir::kNoValue;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

namespace {

/// The longest chain of floating ops. The next op of a longer chain gets a place, which bounds recursion.
constexpr int kMostFloating = 12;

bool may_float(OpCode code) { return ir::traits_of(code).may_move; }

}  // namespace

OpSequence::OpSequence(ir::Program& program, std::vector<Op> ops) : program_(program), ops_(std::move(ops)) {
  places_.resize(program.values.size());
  floating_.resize(program.values.size(), nullptr);
  std::vector<int> depth(program.values.size(), 0);
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    int above = op.operands.empty() ? 0 : depth[op.operands[0]];
    if (may_float(op.code) && above < kMostFloating) {
      floating_[op.results[0]] = &op;
      depth[op.results[0]] = above + 1;
      continue;
    }
    for (size_t r = 0; r < op.results.size(); ++r)
      places_[op.results[r]] = {static_cast<int32_t>(row_.size()), static_cast<uint32_t>(r)};
    row_.push_back(static_cast<uint32_t>(i));
    reads_.push_back(reads(op));
    forms_.push_back(form_hash(program, op));
  }
  rolled_.resize(row_.size());
}

ValueId OpSequence::read(size_t place, size_t index) const { return resolve(reads_[place][index]); }

ValueId OpSequence::root(ValueId v) const {
  while (const Op* op = floating(v)) {
    ValueId from = source(*op);
    if (from == kNoValue) return v;
    v = from;
  }
  return v;
}

void OpSequence::set_rolled(size_t begin, size_t end) {
  for (size_t place = begin; place < end; ++place) rolled_[place] = true;
}

ValueId OpSequence::add_floating(OpCode code, ValueId operand, ir::Attrs attrs, ir::Type type) {
  ValueId result = program_.new_value(std::move(type));
  const Op& op = made_.emplace_back(Op{code, {operand}, {result}, std::move(attrs), {}});
  floating_.resize(program_.values.size(), nullptr);
  floating_[result] = &op;
  return result;
}

/// The value that an op reads as a whole, behind casts and transpositions; kNoValue for slices and constants, which may
/// differ from step to step.
ValueId OpSequence::weight(ValueId v) const {
  while (const Op* op = floating(v)) {
    if (op->operands.empty() || ir::is_range(op->code)) return kNoValue;
    v = op->operands[0];
  }
  return v;
}

std::vector<size_t> OpSequence::tokens(bool strong) const {
  if (!strong) return forms_;
  constexpr int kSteady = 3;
  std::unordered_map<size_t, int> counts;
  auto for_each_weight = [&](size_t place, auto&& f) {
    for (size_t i = 0; i < reads_[place].size(); ++i) {
      ValueId v = weight(reads_[place][i]);
      if (v == kNoValue) continue;
      size_t key = forms_[place];
      mix(key, i);
      mix(key, v);
      f(key);
    }
  };
  for (size_t place = 0; place < row_.size(); ++place) for_each_weight(place, [&](size_t key) { ++counts[key]; });
  std::vector<size_t> tokens = forms_;
  for (size_t place = 0; place < row_.size(); ++place)
    for_each_weight(place, [&](size_t key) {
      if (counts[key] >= kSteady) mix(tokens[place], key);
    });
  return tokens;
}

}  // namespace weft::passes
