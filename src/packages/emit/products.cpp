// Products by constant weights. The columns of a nest are divided into blocks of a few vectors. For each block the rows
// of all weights that its sums need are stored one after the other in the order of reading, so that a step reads its
// weights once and in sequence. Sums begin with their biases and stay in registers; the elementwise ops on the sums
// follow at once.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>

#include "codegen/pointwise.h"
#include "packages/emit/dots.h"
#include "packages/emit/emitter.h"

namespace weft::packages {
namespace {

constexpr int64_t kStraight = 64;  // multiply-adds that are written out
constexpr int64_t kSplits = 4;     // registers of a sum
constexpr int64_t kUnrolled = 4;   // steps of the loop over K
// Bytes between a load and itself in the next turn of the loop over K. From 2 KB on the prefetchers into the nearest
// cache see no stride (Intel's manual says so of its own; on Zen 5 weights in the second cache came at 150 GB/s in
// place of 230).
constexpr int64_t kStride = 2048;

// Where weights come from a second cache, a block is one vector wide, so that the ops on its sums are done while the
// next block's weights arrive: on a processor that executes far ahead, and if the left operands' elements, which each
// block loads again, are few beside the weights.
constexpr size_t kOverlapped = 2;            // sums: more are needed
constexpr int64_t kNear = int64_t{1} << 15;  // bytes of the nearest cache
constexpr int64_t kWide = 8;                 // multiply-adds in flight of such a processor

}  // namespace

using ir::Op;
using ir::ValueId;
using llvm::Value;

Emitter::Sum Emitter::sum_of(ValueId value, const Place& place) {
  Sum sum{value, place, {}, {}, {}};
  add_leaves(value, place, true, sum);
  return sum;
}

void Emitter::add_leaves(ValueId value, const Place& place, bool top, Sum& sum) {
  if (step_.is_constant(value)) {
    (is_packable(value, place) ? sum.constants : sum.others).push_back({value, place});
    return;
  }
  const Op* op = step_.op_of(value);
  const bool loads = op == nullptr || (buffers_.contains(value) && !current_.contains(value));
  const bool in_order = place.lane < 0 || place.lane + 1 == static_cast<int64_t>(place.at.size());
  if (!loads && in_order && is_product(step_, *op)) {
    const std::vector<Coordinate> rows(place.at.begin(), place.at.end() - 1);
    for (const Segment& segment : segments(step_, *op))
      sum.parts.push_back({op, segment.value, rows, segment.first, segment.size, place.at.back()});
    return;
  }
  const bool own = top || !current_.contains(value);  // a value of the nest is a sum of its own
  if (!loads && own && ir::is_addition(op->code) && (top || is_read_apart_[value])) {
    for (ValueId operand : op->operands) add_leaves(operand, place, false, sum);
    return;
  }
  if (!loads && own && (ir::is_range(op->code) || ir::is_alias(op->code))) {
    std::optional<Place> moved = place;
    if (ir::is_alias(op->code))
      moved = reshaped(*op, place);
    else
      moved->at[static_cast<size_t>(op->attr<int64_t>("dim"))].offset += op->attr<int64_t>("start");
    Sum inner{value, place, {}, {}, {}};
    if (moved) add_leaves(op->operands[0], *moved, false, inner);
    if (!inner.parts.empty()) {
      std::ranges::move(inner.parts, std::back_inserter(sum.parts));
      std::ranges::move(inner.constants, std::back_inserter(sum.constants));
      std::ranges::move(inner.others, std::back_inserter(sum.others));
      return;
    }
  }
  sum.others.push_back({value, place});
}

/// Whether a constant can be packed for all blocks: it is the same in all rows of the loops around it.
bool Emitter::is_packable(ValueId value, const Place& place) const {
  const Op* op = step_.op_of(value);
  for (size_t i = 0; i < place.at.size(); ++i) {
    if (static_cast<int64_t>(i) == place.lane || place.at[i].base == nullptr) continue;
    if (op == nullptr || !ir::is_repeated(op->code)) return false;
    if (std::ranges::count(op->attr<std::vector<int64_t>>("dims"), static_cast<int64_t>(i)) > 0) return false;
  }
  return place.lane >= 0;
}

Value* Emitter::multiply_add(Value* a, Value* b, Value* c) {
  if (!a->getType()->isFPOrFPVectorTy()) return b_.CreateAdd(b_.CreateMul(a, b), c);
  return b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {a->getType()}, {a, b, c});
}

Value* Emitter::add(Value* a, Value* b) {
  return a->getType()->isFPOrFPVectorTy() ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
}

/// A variable of the function, which LLVM turns into a register.
Value* Emitter::variable(Value* start) {
  llvm::BasicBlock& entry = function_->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  Value* slot = at_entry.CreateAlloca(start->getType());
  b_.CreateStore(start, slot);
  return slot;
}

/// A sum at a place outside of all blocks of columns: correct but slow.
Value* Emitter::plain_sum(const Sum& sum) {
  auto* type = register_type(dtype(sum.value), sum.place.lanes);
  if (recording_ != nullptr) return llvm::PoisonValue::get(type);
  Value* total = variable(llvm::Constant::getNullValue(type));
  for (const Part& part : sum.parts) {
    if (in_bytes(part)) {
      Value* products = plain_bytes(part, sum.place);
      b_.CreateStore(add(b_.CreateLoad(type, total), products), total);
      continue;
    }
    const auto scope = std::pair(known_, computed_);
    loop(part.size, 1, [&](Value* k) {
      Place left{part.rows, -1, 1};
      left.at.push_back({k, 0});
      const Coordinate row{k, part.row};
      Value* factor = splat(get(part.left, left), sum.place.lanes);
      Value* before = b_.CreateLoad(type, total);
      b_.CreateStore(multiply_add(factor, get_weights(part, row, sum.place), before), total);
    });
    std::tie(known_, computed_) = scope;
  }
  Value* result = b_.CreateLoad(type, total);
  for (const std::vector<Leaf>& leaves : {sum.constants, sum.others})
    for (const Leaf& leaf : leaves) result = add(result, get(leaf.value, leaf.place));
  return result;
}

std::vector<Emitter::Sum> Emitter::find_sums(const std::vector<ValueId>& values, const Place& first) {
  std::vector<Sum> sums;
  const auto known = known_;
  llvm::BasicBlock* here = b_.GetInsertBlock();
  auto* aside = llvm::BasicBlock::Create(b_.getContext(), "aside", function_);
  b_.SetInsertPoint(aside);
  recording_ = &sums;
  recorded_in_ = here;
  for (ValueId value : values)
    if (value != ir::kNoValue) get(value, first);
  recording_ = nullptr;
  recorded_in_ = nullptr;
  b_.SetInsertPoint(here);
  aside->dropAllReferences();
  aside->eraseFromParent();
  known_ = known;
  return sums;
}

Emitter::Blocks Emitter::blocks_for(ValueId value, const std::vector<Sum>& sums, int64_t weights) const {
  Blocks blocks;
  const std::vector<int64_t> shape = sizes(value);
  blocks.columns = shape.empty() ? 1 : shape.back();
  blocks.lanes = lanes_for(value);
  const int64_t vectors = (blocks.columns + blocks.lanes - 1) / blocks.lanes;
  blocks.count = vectors;
  if (sums.empty()) return blocks;
  int64_t of_bytes = 0;
  for (const Sum& sum : sums) of_bytes += std::ranges::count_if(sum.parts, [&](auto& part) { return in_bytes(part); });
  int64_t most = target_.registers * 3 / 4 / static_cast<int64_t>(sums.size());
  if (of_bytes > 0 && target_.byte_sums > 0) most = std::min(most, target_.byte_sums / of_bytes);
  most = std::max<int64_t>(most, 1);
  if (sums.size() > kOverlapped && weights > kNear && target_.chains >= kWide) most = 1;
  int64_t least = 0;  // the least cost so far: 2 for a vector, 1 for the start of a block
  for (int64_t wide = 1; wide <= std::min(most, vectors); ++wide) {
    const int64_t count = (vectors + wide - 1) / wide, cost = 2 * count * wide + count;
    if (wide > 1 && cost > least) continue;
    least = cost;
    blocks.vectors = static_cast<unsigned>(wide);
    blocks.count = count;
  }
  return blocks;
}

std::vector<Emitter::Group> Emitter::groups_of(const std::vector<Sum>& sums) const {
  std::vector<Group> groups;
  for (size_t s = 0; s < sums.size(); ++s)
    for (size_t p = 0; p < sums[s].parts.size(); ++p) {
      const Part& part = sums[s].parts[p];
      const auto same = std::ranges::find_if(groups, [&](const Group& group) {
        const Part& first = sums[group[0].first].parts[group[0].second];
        return first.left == part.left && first.rows == part.rows && first.size == part.size &&
               in_bytes(first) == in_bytes(part);
      });
      if (same == groups.end())
        groups.push_back({{s, p}});
      else
        same->push_back({s, p});
    }
  return groups;
}

/// Emits the products of one row of a left operand: each of its elements, or words of bytes, times a vector of each
/// part. The products are added to the sums that contain the parts; for int8 weights each part has a sum of its own.
/// `turn`: which group of the run.
void Emitter::emit_group(const std::vector<Sum>& sums, const Group& group, const Run& run, const Coordinate& turn,
                         const Blocks& blocks, Value* weights, const Totals& totals, int64_t splits) {
  const Part& first = sums[group[0].first].parts[group[0].second];
  const DType stored = stored_type(sums);
  const bool words = in_bytes(first);
  auto* type = register_type(words ? DType::kI32 : dtype(sums[0].value), blocks.lanes);
  const int64_t bytes = words ? elements_in_word(target_) : size_of(stored), size = turns(first);
  const auto columns = static_cast<int64_t>(group.size()) * blocks.width();
  if (turn.base != nullptr)
    weights = b_.CreateGEP(b_.getInt8Ty(), weights, b_.CreateMul(turn.base, number(size * columns * bytes)));
  const auto multiply = [&](Value* k, int64_t ahead, size_t p) {
    const Place left = left_of(first, run, turn, {k, ahead});
    const int64_t row_ahead = turn.offset * size + ahead;
    Value* row = b_.CreateGEP(b_.getInt8Ty(), weights, b_.CreateMul(k, number(columns * bytes)));
    const std::vector<Value*>& part = totals[stored == DType::kI8 ? p : group[p].first];
    const size_t of_step = part.size() / at_once_;
    const auto own = static_cast<int64_t>(of_step) / blocks.vectors;  // of its splits
    for (unsigned v = 0; v < blocks.vectors; ++v) {
      const size_t vector = p * blocks.vectors + v, vectors = group.size() * blocks.vectors;
      const int64_t offset = row_ahead * columns * bytes;
      std::vector<Value*> weight;
      if (words)
        weight = load_bytes(row, offset + static_cast<int64_t>(vector) * blocks.lanes * bytes, blocks.lanes);
      else
        weight.push_back(load_vector(row, offset, stored, vector, vectors, blocks.lanes));
      for (now_ = 0; now_ < at_once_; ++now_) {
        Value* total = part[now_ * of_step + v + static_cast<size_t>(row_ahead % own) * blocks.vectors];
        Value* before = b_.CreateLoad(type, total);
        Value* after = words ? add_word(first, left, weight, before, blocks.lanes)
                             : multiply_add(splat(get(run.left ? run.left->memory : first.left, left), blocks.lanes),
                                            weight[0], before);
        b_.CreateStore(after, total);
      }
      now_ = 0;
    }
  };
  const auto scope = std::pair(known_, computed_);
  if (is_straight(sums, group, blocks)) {  // a part as a whole: what follows from the first may begin
    for (size_t p = 0; p < group.size(); ++p)
      for (int64_t k = 0; k < size; ++k) multiply(number(0), k, p);
  } else {
    const auto near = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>((kStride - 1) / (columns * bytes))));
    const int64_t unrolled = std::max(std::clamp<int64_t>(near, 1, kUnrolled), splits);
    const int64_t whole = size / unrolled * unrolled;
    const auto step = [&](Value* k, int64_t ahead) {
      for (size_t p = 0; p < group.size(); ++p) multiply(k, ahead, p);
    };
    loop(whole, unrolled, [&](Value* k) {
      for (int64_t ahead = 0; ahead < unrolled; ++ahead) step(k, ahead);
    });
    std::tie(known_, computed_) = scope;
    for (int64_t k = whole; k < size; ++k) step(number(0), k);
  }
  std::tie(known_, computed_) = scope;
}

/// One vector of a sum at the step being emitted: adds up its partial sums.
Value* Emitter::add_splits(const std::vector<Value*>& total, unsigned vector, const Blocks& blocks, llvm::Type* type) {
  std::vector<Value*> all;
  const size_t of_step = total.size() / at_once_;
  for (size_t i = vector; i < of_step; i += blocks.vectors)
    all.push_back(b_.CreateLoad(type, total[now_ * of_step + i]));
  for (size_t half = all.size() / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) all[i] = add(all[i], all[i + half]);
  return all[0];
}

/// The products of all groups. int8 weights count in the scale of their part and column: their sums are multiplied by
/// it and added to the total when they are complete.
void Emitter::emit_groups(const std::vector<Sum>& sums, const Blocks& blocks, Value* block, const Totals& totals,
                          const std::vector<Group>& groups, const Layout& layout, int64_t splits) {
  const int64_t bytes = blocks.lanes * size_of(dtype(sums[0].value));
  const auto at = [&](int64_t offset) { return b_.CreateGEP(b_.getInt8Ty(), block, number(offset)); };
  int64_t scale = layout.scales, correction = layout.corrections;
  for (const auto& [g, run] : runs_of(sums, groups, blocks)) {
    if (stored_type(sums) != DType::kI8) {
      emit_run(sums, groups[g], run, blocks, at(layout.rows[g]), totals, splits);
      continue;
    }
    const Part& first = sums[groups[g][0].first].parts[groups[g][0].second];
    const bool corrected = in_bytes(first) && stored_offset(target_) != 0;
    Totals partial;
    for (size_t p = 0; p < groups[g].size(); ++p) {
      partial.push_back(begin_bytes(first, corrected ? at(correction) : nullptr, blocks, splits));
      correction += corrected ? blocks.vectors * bytes : 0;
    }
    emit_run(sums, groups[g], run, blocks, at(layout.rows[g]), partial, splits);
    for (size_t p = 0; p < groups[g].size(); ++p)
      end_bytes(first, partial[p], at(scale + static_cast<int64_t>(p) * blocks.vectors * bytes), blocks,
                totals[groups[g][p].first]);
    scale += static_cast<int64_t>(run.groups * groups[g].size()) * blocks.vectors * bytes;
  }
}

/// Whether the products of a group are written out, and not a loop.
bool Emitter::is_straight(const std::vector<Sum>& sums, const Group& group, const Blocks& blocks) const {
  const int64_t size = sums[group[0].first].parts[group[0].second].size;
  return static_cast<int64_t>(group.size()) * blocks.vectors * size <= kStraight;
}

/// The number of registers for each vector of a sum, so that enough multiply-adds are independent of each other. A sum
/// whose products are all unrolled is short, and the ops after it wait for it: it gets as many as there are registers
/// for, up to 4.
int64_t Emitter::splits_for(const std::vector<Sum>& sums, const std::vector<Group>& groups,
                            const Blocks& blocks) const {
  const int64_t vectors = static_cast<int64_t>(sums.size()) * blocks.vectors;
  const bool straight = std::ranges::all_of(groups, [&](const Group& each) { return is_straight(sums, each, blocks); });
  int64_t splits = 1;
  while (splits < kSplits &&
         (vectors * splits < target_.chains || (straight && 2 * vectors * splits <= target_.registers / 2)))
    splits *= 2;
  return splits;
}

void Emitter::emit_sums(const std::vector<Sum>& sums, const Blocks& blocks, Value* block) {
  const std::vector<Group> groups = groups_of(sums);
  const Layout layout = layout_of(sums, groups, blocks);
  llvm::GlobalVariable* packed = pack(sums, groups, blocks, layout);
  auto* type = register_type(dtype(sums[0].value), blocks.lanes);
  const int64_t bytes = size_of(dtype(sums[0].value));
  Value* weights = b_.CreateGEP(b_.getInt8Ty(), packed, b_.CreateMul(block, number(layout.bytes)));
  const int64_t splits = splits_for(sums, groups, blocks);
  const std::map<size_t, Run> runs = runs_of(sums, groups, blocks);
  Totals totals(sums.size());
  for (size_t s = 0; s < sums.size(); ++s) {
    const int64_t own = stored_type(sums) == DType::kI8 ? 1 : std::min(splits, longest(sums, s, groups, runs));
    std::vector<Value*> begin;
    for (unsigned i = 0; i < blocks.vectors * own; ++i) {
      const int64_t at = static_cast<int64_t>(s) * blocks.width() + static_cast<int64_t>(i) * blocks.lanes;
      const bool biased = i < blocks.vectors && !sums[s].constants.empty();
      Value* address = b_.CreateGEP(b_.getInt8Ty(), weights, number(at * bytes));
      begin.push_back(biased ? load_weights(address, dtype(sums[s].value), blocks.lanes, blocks.lanes * bytes)
                             : llvm::Constant::getNullValue(type));
    }
    for (unsigned step = 0; step < at_once_; ++step)
      for (Value* each : begin) totals[s].push_back(variable(each));
  }
  emit_groups(sums, blocks, weights, totals, groups, layout, splits);
  for (unsigned i = 0; i < at_once_ * blocks.vectors; ++i) {
    now_ = i / blocks.vectors;
    const unsigned v = i % blocks.vectors;
    for (size_t s = 0; s < sums.size(); ++s) {
      const auto moved = [&](Place place) {
        if (place.lane >= 0) place.at[static_cast<size_t>(place.lane)].offset += static_cast<int64_t>(v) * blocks.lanes;
        return place;
      };
      Value* result = add_splits(totals[s], v, blocks, type);
      for (const Leaf& leaf : sums[s].others) result = b_.CreateFAdd(result, get(leaf.value, moved(leaf.place)));
      known_[{sums[s].value, moved(sums[s].place), now_}] = result;
    }
  }
  now_ = 0;
}

}  // namespace weft::packages
