// The loop nests of a step, one for each task.
#include <algorithm>
#include <functional>
#include <numeric>

#include "codegen/pointwise.h"
#include "packages/emit/emitter.h"
#include "packages/plan/written_rows.h"

namespace weft::packages {

using ir::Op;
using ir::ValueId;
using llvm::Value;

namespace {

/// The place v vectors after the first one.
Place moved(Place first, unsigned v, int64_t lanes) {
  if (first.lane >= 0) first.at.back().offset += static_cast<int64_t>(v) * lanes;
  return first;
}

/// Bytes of weights that fit into the second-level cache of most processors.
constexpr int64_t kCached = int64_t{1} << 18;
/// The largest number of vectors in a nest for which sigmoid and tanh are computed by the formulas for few vectors,
/// which divide (Zen 4: LSTM with 40 units, which has 3 vectors, 219 ns a step in place of 250, GRU 152 in place of
/// 170). With 4 vectors Zen 4 takes a thirtieth less with them; on Zen 5 they took more when powers didn't come from a
/// table.
constexpr int64_t kFew = 3;
/// The largest number of vectors in a row that are computed before any is stored.
constexpr int64_t kTogether = 4;

}  // namespace

void Emitter::emit_task(const Task& task) {
  current_.clear();
  if (is_empty(sizes(task.values[0]))) {
    for (ValueId value : task.values) buffers_[value] = in_state(value, reserve(value, 0));
    return;
  }
  known_.clear();
  depths_.clear();
  chains_.clear();
  in_no_chain_.clear();
  computed_.clear();
  for (ValueId left : rounded_for(task))
    if (!rounded_.contains(left)) round_rows(left);
  known_.clear();
  chains_.clear();
  in_no_chain_.clear();
  computed_.clear();
  if (task.way == Way::kElements) return emit_nest(task.values);
  over_steps(1, [&] { emit_one(task); }, steps_in_rows(task));
}

void Emitter::emit_one(const Task& task) {
  const Op& op = *step_.op_of(task.values[0]);
  switch (task.way) {
    case Way::kElements:
      return emit_nest(task.values);
    case Way::kParts:
      return emit_parts(op);
    case Way::kReduction:
      return emit_reduction(op);
    case Way::kContraction:
      return emit_contraction(op);
  }
}

std::vector<Emitter::Sum> Emitter::of_type(const std::vector<Sum>& sums, DType dtype) const {
  std::vector<Sum> some;
  std::ranges::copy_if(sums, std::back_inserter(some), [&](const Sum& sum) { return this->dtype(sum.value) == dtype; });
  return some;
}

/// The sums of a nest, which are in registers at the same time. Their places are in no loop yet.
std::vector<Emitter::Sum> Emitter::sums_of_nest(const std::vector<ValueId>& values) {
  const std::vector<int64_t> domain = sizes(values[0]);
  if (domain.empty()) return {};
  Place first{std::vector<Coordinate>(domain.size()), static_cast<int64_t>(domain.size()) - 1, lanes_for(values[0])};
  block_column_ = nullptr;
  return find_sums(values, first);
}

/// The bytes of all weights of these sums.
int64_t Emitter::bytes_of(const std::vector<Sum>& sums) const {
  int64_t bytes = 0;
  for (const Sum& sum : sums)
    for (const Part& part : sum.parts)
      bytes += part.size * sizes(sum.value).back() *
               size_of(dtype(sum.value) == DType::kF32 ? weights_.dtype() : DType::kF64);
  return bytes;
}

/// Whether every second step takes the blocks backwards. If a nest's weights are larger than a cache, the weights that
/// one step reads last are read first in the next, while they are still there. No block depends on another.
bool Emitter::turns_round(const std::vector<Sum>& sums, const Blocks& blocks) const {
  int64_t bytes = 0;
  for (DType dtype : {DType::kF32, DType::kF64})
    if (const std::vector<Sum> some = of_type(sums, dtype); !some.empty())
      bytes += layout_of(some, groups_of(some), blocks).bytes * blocks.count;
  return bytes > kCached && blocks.count > 1;
}

/// Whether all blocks of a row are computed before any is stored, since there are few of them.
bool Emitter::are_together(const Blocks& blocks) {
  return blocks.backwards == nullptr && blocks.count * blocks.vectors <= kTogether;
}

bool Emitter::is_in_place(size_t state, const Blocks& blocks) const {
  const std::vector<int64_t> shape = sizes(program_.body.args[state]);
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  const auto how = tasks_.in_place[state];
  return how == Tasks::InPlace::kYes || (how == Tasks::InPlace::kIfOneBlock && rows == 1 && are_together(blocks));
}

void Emitter::emit_nest(const std::vector<ValueId>& values) {
  current_.insert(values.begin(), values.end());
  const std::vector<Sum> sums = sums_of_nest(values);
  Blocks blocks = blocks_for(values[0], sums, bytes_of(sums));
  if (steps_ == 1 && turns_round(sums, blocks)) blocks.backwards = is_backwards();
  const std::vector<int64_t> domain = sizes(values[0]);
  std::vector<Destination> to;
  for (ValueId value : values) {
    const auto result = std::ranges::find(program_.body.results, value);
    const auto state = static_cast<size_t>(result - program_.body.results.begin());
    const bool is_state = state < step_.states() && !rings_.contains(value);
    if (is_state && (steps_ > 1 || is_in_place(state, blocks))) {
      const ValueId old = program_.body.args[state];
      const Memory::Slot& slot = memory_.slots.at(old);
      const int64_t row = slot.strides.size() > 1 ? slot.strides[slot.strides.size() - 2] : 0;
      const bool fits =
          domain.size() < 2 ? blocks.padded() * size_of(dtype(old)) <= slot.bytes : blocks.padded() <= row;
      if (fits || domain.empty()) {
        memory_.slots[value] = slot;
        buffers_[value] = steps_ > 1 ? next_state(old) : buffers_.at(old);
        is_where_read_next_.insert(value);
      }
    }
    if (!buffers_.contains(value)) buffers_[value] = in_state(value, reserve(value, blocks.padded()));
    to.push_back({buffers_.at(value), std::vector<Coordinate>(domain.size())});
  }
  const unsigned side_by_side = steps_in_vector(values, sums, blocks);
  over_steps(steps_for(sums, blocks, side_by_side), [&] { emit_elements(values, to, domain, blocks); }, side_by_side);
}

void Emitter::emit_elements(const std::vector<ValueId>& values, const std::vector<Destination>& to,
                            const std::vector<int64_t>& domain, const Blocks& blocks) {
  if (is_empty(domain)) return;
  slack_ = blocks.padded() - blocks.columns;
  if (domain.empty()) {
    const Place one{{}, -1, 1};
    return store_block(compute_block(values, to, one, blocks, number(0)), to, one, blocks, 0);
  }
  std::vector<int64_t> rows = domain;
  rows.back() = 1;
  alone_ = std::accumulate(rows.begin(), rows.end(), blocks.count * blocks.vectors, std::multiplies<>()) <= kFew;
  std::vector<Coordinate> at(domain.size());
  loops(rows, 0, at, [&] {
    Place first{at, static_cast<int64_t>(domain.size()) - 1, blocks.lanes};
    const auto move_to = [&](Value* block) {
      block_column_ = blocks.count == 1 ? nullptr : b_.CreateMul(block, number(blocks.width()), "", true, true);
      first.at.back() = {block_column_, first_column_};
    };
    if (are_together(blocks)) {
      std::vector<Vectors> all;
      for (int64_t block = 0; block < blocks.count; ++block) {
        move_to(number(block));
        all.push_back(compute_block(values, to, first, blocks, number(block)));
      }
      for (int64_t block = 0; block < blocks.count; ++block) {
        move_to(number(block));
        store_block(all[static_cast<size_t>(block)], to, first, blocks, block * blocks.width());
      }
      return;
    }
    loop(blocks.count, 1, [&](Value* i) {
      const auto scope = std::pair(known_, computed_);
      Value* block = i;
      if (blocks.backwards != nullptr)
        block = b_.CreateSelect(blocks.backwards, b_.CreateSub(number(blocks.count - 1), i), i);
      move_to(block);
      store_block(compute_block(values, to, first, blocks, block), to, first, blocks, 0);
      std::tie(known_, computed_) = scope;
    });
  });
  block_column_ = nullptr;
  alone_ = false;
}

/// The vectors of one block. All are computed before any is stored, since a state may be stored where it is read.
Emitter::Vectors Emitter::compute_block(const std::vector<ValueId>& values, const std::vector<Destination>& to,
                                        const Place& first, const Blocks& blocks, Value* number) {
  std::vector<Sum> sums = find_sums(values, first);
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const std::vector<Sum> some = of_type(sums, dtype);
    if (!some.empty()) emit_sums(some, blocks, number);
  }
  Vectors vectors(values.size());
  for (unsigned i = 0; i < at_once_ * blocks.vectors; ++i) {
    now_ = i / blocks.vectors;
    const Place place = moved(first, i % blocks.vectors, blocks.lanes);
    if (tasks_.may_fail && place.lane >= 0) {
      std::vector<llvm::Constant*> lanes;
      for (unsigned i = 0; i < place.lanes; ++i) lanes.push_back(llvm::ConstantInt::get(index_, i));
      Value* column =
          b_.CreateAdd(b_.CreateVectorSplat(place.lanes, sum(place.at.back())), llvm::ConstantVector::get(lanes));
      valid_ =
          b_.CreateICmpSLT(column, b_.CreateVectorSplat(place.lanes, this->number(first_column_ + blocks.columns)));
    }
    for (size_t each = 0; each < values.size(); ++each)
      vectors[each].push_back(values[each] == ir::kNoValue
                                  ? llvm::Constant::getNullValue(register_type(to[each].buffer.dtype, place.lanes))
                                  : get(values[each], place));
    valid_ = nullptr;
  }
  now_ = 0;
  return vectors;
}

/// Stores what compute_block returned. `begin`: columns of the row before the block, 0 if they aren't known.
void Emitter::store_block(const Vectors& vectors, const std::vector<Destination>& to, const Place& first,
                          const Blocks& blocks, int64_t begin) {
  for (size_t i = 0; i < vectors.size(); ++i)
    for (unsigned each = 0; each < at_once_ * blocks.vectors; ++each) {
      now_ = each / blocks.vectors;
      const unsigned v = each % blocks.vectors;
      std::vector<Coordinate> at = moved(first, v, blocks.lanes).at;
      for (size_t d = 0; d < at.size(); ++d) {
        const Coordinate& origin = to[i].origin[d];
        at[d].offset += origin.offset;
        if (origin.base != nullptr) at[d].base = at[d].base ? b_.CreateAdd(at[d].base, origin.base) : origin.base;
      }
      const int64_t left = blocks.columns - begin - static_cast<int64_t>(v) * blocks.lanes;
      if (to[i].exact && left <= 0) continue;
      if (to[i].exact && (blocks.count == 1 || begin > 0) && left < blocks.lanes)
        store_exactly(to[i].buffer, at, vectors[i][each], left);
      else
        store(to[i].buffer, at, vectors[i][each]);
    }
  now_ = 0;
}

/// Stores one part of a concatenation to each of `to`: whole vectors first, then the rest of the last one. Nothing
/// after the part's columns is written. Without a part: zeros in the shape of the whole.
void Emitter::emit_part(ValueId part, ValueId whole, std::span<const Buffer> to,
                        const std::vector<Coordinate>& origin) {
  current_.clear();
  known_.clear();
  depths_.clear();
  chains_.clear();
  in_no_chain_.clear();
  computed_.clear();
  const ValueId shaped = part == ir::kNoValue ? whole : part;
  const std::vector<int64_t> domain = sizes(shaped);
  if (is_empty(domain)) return;
  const Blocks blocks = blocks_for(shaped);
  std::vector<Destination> destinations;
  for (const Buffer& buffer : to) destinations.push_back({buffer, origin, true});
  const std::vector<ValueId> values(to.size(), part);
  const auto in_part = [&](int64_t first, int64_t columns) {
    first_column_ = first;
    emit_elements(values, destinations, domain,
                  {columns, (columns + blocks.lanes - 1) / blocks.lanes, blocks.lanes, 1});
    first_column_ = 0;
  };
  const int64_t whole_vectors = blocks.columns / blocks.lanes * blocks.lanes;
  if (whole_vectors > 0) in_part(0, whole_vectors);
  if (whole_vectors < blocks.columns) in_part(whole_vectors, blocks.columns - whole_vectors);
}

void Emitter::emit_parts(const Op& op) {
  const ValueId whole = op.results[0];
  if (rings_.contains(whole)) return emit_ring(whole);
  if (is_changed_in_place(op)) return emit_change(op);
  if (written_rows(op.code) != WrittenRows::kNone) return emit_scatter(op);
  const std::vector<int64_t> shape = sizes(whole);
  buffers_[whole] = in_state(whole, reserve(whole, shape.empty() ? 1 : shape.back()));
  std::vector<Coordinate> origin(shape.size());
  const auto put = [&](ValueId part) { emit_part(part, whole, {&buffers_.at(whole), 1}, origin); };
  if (ir::is_join(op.code)) {
    const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
    for (ValueId part : op.operands) {
      put(part);
      origin[dim].offset += sizes(part)[dim];
    }
    return;
  }
  const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  if (ir::traits_of(op.code).lowering == ir::Lowering::kRowCopy) {
    put(ir::kNoValue);
    origin[dim].offset = ir::size_attr(op, "low").constant();
    put(op.operands[0]);
    return;
  }
  put(op.operands[0]);
  known_.clear();
  computed_.clear();
  origin[dim].base = checked_index(get(op.operands[2], {{}, -1, 1}), shape[dim] - sizes(op.operands[1])[dim]);
  put(op.operands[1]);
}

}  // namespace weft::packages
