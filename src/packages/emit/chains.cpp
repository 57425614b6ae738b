// Sums and maxima of many terms that are alike, as taps of a filter are: a loop over the terms.
#include "packages/plan/chains.h"

#include <cstring>

#include "packages/emit/emitter.h"

namespace weft::packages {

using ir::Op;
using ir::ValueId;
using llvm::Value;

namespace {

constexpr size_t kLeastTerms = 48;     // fewer are written out
constexpr int64_t kTotalsOfTerms = 4;  // registers of a fold, since each addition waits for the one before

}  // namespace

const std::vector<ChainPart>& Emitter::chain_at(ValueId value, const Op& op) {
  static const std::vector<ChainPart> none;
  const DType type = dtype(value);
  const bool folds = folds_terms(op) && (type == DType::kF32 || type == DType::kF64) && !in_no_chain_.contains(value);
  if (!folds) return none;
  const auto [known, is_new] = chains_.try_emplace(value);
  if (!is_new) return known->second;
  const auto in_memory = [&](ValueId id) { return buffers_.contains(id) && !current_.contains(id); };
  const auto is_shared = [&](ValueId id) { return current_.contains(id) || !is_read_apart_[id]; };
  known->second = chain_of(step_, value, kLeastTerms, in_memory, is_shared);
  if (!known->second.empty()) return known->second;
  // What is no chain has no chain of the same op within it, apart from other operands.
  for (const Op* inner = &op; inner != nullptr && inner->code == op.code;) {
    in_no_chain_.insert(inner->results[0]);
    const Op* next = step_.op_of(inner->operands[0]);
    inner = next != nullptr && next->code == op.code ? next : nullptr;
  }
  return known->second;
}

/// A vector of the chain.
Value* Emitter::fold_chain(const Op& op, const std::vector<ChainPart>& chain, const Place& place) {
  Value* total = nullptr;
  const DType type = dtype(op.results[0]);
  for (const ChainPart& part : chain) {
    Value* next = nullptr;
    if (part.leaves.empty())
      next = get(part.terms[0], place);
    else if (recording_ != nullptr)  // no term is a product
      next = b_.CreateFreeze(llvm::PoisonValue::get(register_type(type, place.lanes)));
    else
      next = fold_terms(op, part, place);
    total = total == nullptr ? next : combine(op, total, next);
  }
  return total;
}

/// A vector of terms that are alike: a loop over them.
Value* Emitter::fold_terms(const Op& op, const ChainPart& part, const Place& place) {
  const auto count = static_cast<int64_t>(part.terms.size());
  const auto scope = std::tuple(known_, computed_, moved_leaves_);
  // Each total begins with a term of its own.
  std::vector<Value*> totals;
  const auto term = [&](Value* turn, int64_t ahead) {
    known_.clear();
    computed_.clear();
    turn_ = {turn, ahead};
    Value* value = get(part.terms[0], place);
    turn_ = {};
    return value;
  };
  for (const ChainLeaf& leaf : part.leaves) move_leaf(leaf);
  for (int64_t i = 0; i < kTotalsOfTerms; ++i) totals.push_back(variable(term(nullptr, i)));
  llvm::Type* type = llvm::cast<llvm::AllocaInst>(totals[0])->getAllocatedType();
  const auto one = [&](Value* turn, int64_t ahead, int64_t i) {
    Value* total = totals[static_cast<size_t>(i)];
    Value* next = term(turn, ahead + i);
    b_.CreateStore(combine(op, b_.CreateLoad(type, total), next), total);
  };
  const int64_t looped = count / kTotalsOfTerms * kTotalsOfTerms - kTotalsOfTerms;
  loop(looped, kTotalsOfTerms, [&](Value* turn) {
    for (int64_t i = 0; i < kTotalsOfTerms; ++i) one(turn, kTotalsOfTerms, i);
  });
  for (int64_t i = 0; looped + kTotalsOfTerms + i < count; ++i) one(nullptr, looped + kTotalsOfTerms, i);
  std::tie(known_, computed_, moved_leaves_) = scope;
  std::vector<Value*> all;
  for (Value* total : totals) all.push_back(b_.CreateLoad(type, total));
  return combine(op, combine(op, all[0], all[2]), combine(op, all[1], all[3]));
}

/// From now on get() finds the leaf where the term of the turn reads it.
void Emitter::move_leaf(const ChainLeaf& leaf) {
  if (leaf.constants.empty()) {
    if (leaf.sliced != leaf.value) moved_leaves_[leaf.value] = {&leaf, nullptr, {}};
    return;
  }
  if (std::ranges::all_of(leaf.constants, [&](ValueId each) { return each == leaf.value; })) return;
  const interpreter::Array& first = step_.constant(leaf.value);
  std::vector<int64_t> shape = first.sizes;
  shape.insert(shape.begin(), static_cast<int64_t>(leaf.constants.size()));
  interpreter::Array all(first.dtype, shape);
  for (size_t i = 0; i < leaf.constants.size(); ++i) {
    const std::vector<std::byte>& bytes = step_.constant(leaf.constants[i]).bytes;
    std::memcpy(all.bytes.data() + i * bytes.size(), bytes.data(), bytes.size());
  }
  moved_leaves_[leaf.value] = {&leaf, table(all), {}};
  moved_leaves_[leaf.value].shape.dtype = all.dtype;
  moved_leaves_[leaf.value].shape.sizes = shape;
}

/// A vector of a leaf in the turn of a loop over terms.
Value* Emitter::get_moved(const MovedLeaf& moved, const Place& place) {
  const ChainLeaf& leaf = *moved.leaf;
  Place there = place;
  if (moved.table != nullptr) {
    there.at.insert(there.at.begin(), turn_);
    if (there.lane >= 0) ++there.lane;
    return load_from(moved.table, moved.shape, there);
  }
  for (size_t d = 0; d < there.at.size(); ++d) {
    Coordinate& at = there.at[d];
    at.offset += leaf.starts[d] + turn_.offset * leaf.distances[d];
    if (turn_.base == nullptr || leaf.distances[d] == 0) continue;
    Value* distance = index(llvm::Instruction::Mul, turn_.base, leaf.distances[d]);
    at.base = at.base == nullptr ? distance : index(llvm::Instruction::Add, at.base, distance);
  }
  return get(leaf.sliced, there);
}

}  // namespace weft::packages
