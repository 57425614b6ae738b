#include "planning/cpu/prepack.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <tuple>

#include "base/division.h"
#include "base/target.h"
#include "ir/builder.h"
#include "passes/rewrite.h"

namespace weft::planning {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;

/// For each value the ops that read it, and whether a block returns it.
struct Uses {
  std::map<ValueId, std::vector<const Op*>> ops;
  std::set<ValueId> returned;
};

void collect_uses(const Block& block, Uses& uses) {
  for (const Op& op : block.ops) {
    for (ValueId operand : op.operands) uses.ops[operand].push_back(&op);
    for (const Block& region : op.regions) collect_uses(region, uses);
  }
  for (ValueId result : block.results) uses.returned.insert(result);
}

/// The number of equal groups of columns (gates) in which the product's result is read; 1 unless every reader is a
/// slice of one group.
int64_t column_groups(const Program& program, ValueId result, int64_t columns, const Uses& uses) {
  if (uses.returned.contains(result)) return 1;
  auto readers = uses.ops.find(result);
  if (readers == uses.ops.end()) return 1;
  int64_t width = 0;
  for (const Op* reader : readers->second) {
    if (!ir::is_range(reader->code) || reader->attr<int64_t>("dim") != program.type(result).rank() - 1) return 1;
    const std::optional<ir::SliceRange> range = ir::constant_range(*reader);
    if (!range) return 1;
    if (width == 0) width = range->limit - range->start;
    if (width == 0 || range->limit - range->start != width || range->start % width != 0) return 1;
  }
  if (columns % width != 0 || columns / width > target::kMaxPanelUnits) return 1;
  return columns / width;
}

/// Units side by side in a panel: the number that pads the panels with the fewest columns of zeros. (For 7 units,
/// panels of 3 compute 9 units, panels of 4 compute 8.) In a loop panels stay narrow, so that even a few units can be
/// split among threads.
int64_t panel_unroll(int64_t groups, int64_t group_columns, int64_t lanes, bool in_loop) {
  if (groups > 1) return 1;
  const int64_t units = ceil_div(group_columns, lanes);
  if (in_loop) return units > 1 ? 2 : 1;
  if (units == 1 || units == 2) return units;
  const auto computed = [&](int64_t unroll) { return ceil_div(units, unroll) * unroll; };
  int64_t best = 3;
  for (int64_t unroll : {4, 2})
    if (computed(unroll) < computed(best)) best = unroll;
  return best;
}

class Prepacker {
 public:
  Prepacker(Program& program, runtime::ByteProducts bytes)
      : program_(program), bytes_are_fast_(bytes == runtime::ByteProducts::kFaster) {
    collect_uses(program.body, uses_);
  }

  void run() { rewrite(program_.body); }

 private:
  /// The place for the pack of a product's weights. Products that are added to each other stay neighbours, so that fuse
  /// makes one stage of them: the pack goes in front of the first.
  int64_t place_of_pack(const std::vector<Op>& ops, const Op& product) const {
    auto place = static_cast<int64_t>(ops.size());
    if (product.code != OpCode::kMatmulPacked) return place;
    auto readers = [&](const Op& op) {
      auto found = uses_.ops.find(op.results[0]);
      return found == uses_.ops.end() ? std::vector<const Op*>() : found->second;
    };
    std::vector<const Op*> wanted = readers(product);
    if (wanted.size() != 1 || !ir::is_addition(wanted[0]->code)) return place;
    while (place > 0 && ops[static_cast<size_t>(place) - 1].code == OpCode::kMatmulPacked &&
           readers(ops[static_cast<size_t>(place) - 1]) == wanted)
      --place;
    return place;
  }

  /// Whether all readers round the value to the type.
  bool is_only_rounded(ValueId value, DType half = DType::kBF16) const {
    auto readers = uses_.ops.find(value);
    if (readers == uses_.ops.end() || uses_.returned.contains(value)) return false;
    return std::ranges::all_of(readers->second, [&](const Op* reader) {
      return reader->code == OpCode::kCast && program_.type(reader->results[0]).dtype == half;
    });
  }

  /// The value in bf16: the value that it was cast from, or a new cast in front of the current op.
  ValueId rounded(ValueId value) {
    if (ValueId half = narrow(value); half != ir::kNoValue) return half;
    auto [found, fresh] = levels_.back().rounded.try_emplace(value, ir::kNoValue);
    if (!fresh) return found->second;
    Block holder;
    ir::Builder builder(program_, holder);
    if (auto parts = joined_.find(value); parts != joined_.end())
      found->second = builder.concat(parts->second.first, parts->second.second);
    else
      found->second = builder.cast(value, DType::kBF16);
    levels_.back().pending.push_back(std::move(holder.ops[0]));
    return found->second;
  }

  /// A product of a bf16 and an f32 operand whose result is rounded to bf16 takes both as bf16, as PyTorch's product of
  /// bf16 does: the gradient of a bf16 weight. drop_cast then removes the casts of its result.
  void narrow_outer(Op& op) {
    if (narrow(op.operands[0]) == ir::kNoValue && narrow(op.operands[1]) == ir::kNoValue) return;
    if (!is_only_rounded(op.results[0])) return;
    const ValueId a = rounded(op.operands[0]), b = rounded(op.operands[1]);
    const ValueId result = op.results[0];
    Block holder;
    rounded_results_[result] = ir::Builder(program_, holder).outer(a, b);
    op = std::move(holder.ops[0]);
  }

  /// A product whose result is rounded to f16 rounds it itself: the gradient of an f16 weight. Its operands stay f32,
  /// since f16 has too few exponents for gradients.
  void round_outer(Op& op) {
    if (program_.type(op.results[0]).dtype != DType::kF32 || !is_only_rounded(op.results[0], DType::kF16)) return;
    const ValueId result = op.results[0];
    Block holder;
    rounded_results_[result] =
        ir::Builder(program_, holder).emit(OpCode::kOuter, op.operands, {{"round_to_f16", true}});
    op = std::move(holder.ops[0]);
  }

  /// A product of two vectors, one row each, becomes elementwise.
  void spread_outer(Op& op) {
    if (program_.type(op.operands[0]).rank() != 1 || op.has("round_to_f16")) return;
    const std::vector<ir::Dim> shape = program_.type(op.results[0]).shape;
    Block holder;
    ir::Builder builder(program_, holder);
    const ValueId a = builder.broadcast(op.operands[0], shape, {0}), b = builder.broadcast(op.operands[1], shape, {1});
    builder.mul(a, b);
    std::ranges::move(holder.ops | std::views::take(2), std::back_inserter(levels_.back().pending));
    holder.ops.back().results = op.results;
    op = std::move(holder.ops.back());
  }

  /// A sum over rows of casts of bf16 whose result is rounded to bf16 reads the bf16 rows and rounds its result once:
  /// the gradient of a bf16 bias. Otherwise the cast of all rows would be stored for it.
  void narrow_sum(Op& op) {
    const ValueId half = narrow(op.operands[0]), result = op.results[0];
    if (half == ir::kNoValue || !is_only_rounded(result)) return;
    const auto& dims = op.attr<std::vector<int64_t>>("dims");
    for (size_t i = 0; i < dims.size(); ++i)
      if (dims[i] != static_cast<int64_t>(i)) return;
    for (const ir::Dim& kept : program_.type(result).shape)
      if (!kept.is_constant()) return;
    Block holder;
    rounded_results_[result] = ir::Builder(program_, holder).reduce_sum(half, dims);
    op = std::move(holder.ops[0]);
  }

  /// True iff the op casts a result that is bf16 or f16 already.
  bool drop_cast(const Op& op) {
    if (op.code != OpCode::kCast) return false;
    auto found = rounded_results_.find(op.operands[0]);
    if (found == rounded_results_.end()) return false;
    replaced_.set(op.results[0], found->second);
    return true;
  }

  using Key = std::tuple<ValueId, int64_t, int64_t, bool>;  // weights, groups, width, transpose_b

  /// A block around the current op.
  struct Level {
    std::set<ValueId> defined;           // by the block's ops so far
    std::vector<Op> pending;             // packs and casts to put before the block's current op
    std::map<ValueId, ValueId> rounded;  // by value: its cast to bf16, if made so far
  };

  void rewrite(Block& block) {
    levels_.emplace_back().defined.insert(block.args.begin(), block.args.end());
    std::vector<Op> ops;
    for (Op& op : block.ops) {
      if (drop_cast(op)) continue;
      passes::substitute(op, replaced_);
      for (Block& region : op.regions) rewrite(region);
      if (op.code == OpCode::kOuter) narrow_outer(op);
      if (op.code == OpCode::kOuter) round_outer(op);
      if (op.code == OpCode::kOuter) spread_outer(op);
      if (op.code == OpCode::kReduceSum) narrow_sum(op);
      if (op.code == OpCode::kMatmul && !takes_bytes(op) && packable(op)) pack(op, levels_.size() > 1);
      note_cast(op);
      Level& here = levels_.back();
      for (Op& pack : here.pending) ops.insert(ops.begin() + place_of_pack(ops, op), std::move(pack));
      here.pending.clear();
      here.defined.insert(op.results.begin(), op.results.end());
      ops.push_back(std::move(op));
    }
    for (ValueId& result : block.results) result = replaced_(result);
    block.ops = std::move(ops);
    levels_.pop_back();
  }

  void note_concat(const Op& op) {
    std::vector<ValueId> parts;
    for (ValueId part : op.operands)
      if (const ValueId half = narrow(part); half != ir::kNoValue) parts.push_back(half);
    if (parts.size() == op.operands.size()) joined_[op.results[0]] = {std::move(parts), op.attr<int64_t>("dim")};
  }

  void note_cast(const Op& op) {
    if (ir::is_join(op.code)) note_concat(op);
    if (op.code != OpCode::kCast) return;
    const DType from = program_.type(op.operands[0]).dtype, to = program_.type(op.results[0]).dtype;
    if (from == DType::kBF16 && to == DType::kF32) narrow_.emplace(op.results[0], op.operands[0]);
    if ((from == DType::kF16 || from == DType::kI8) && to == DType::kF32)
      widened_.emplace(op.results[0], op.operands[0]);
    if (from == DType::kI8 && (to == DType::kF32 || to == DType::kI32)) bytes_.emplace(op.results[0], op.operands[0]);
  }

  /// Makes the product read unpacked 8-bit weights, if that is best for all sizes. True iff it does.
  bool takes_bytes(Op& op) {
    auto found = bytes_.find(op.operands[1]);
    if (found == bytes_.end() || !op.attr_or<bool>("transpose_b", false)) return false;
    const ir::Type& weights = program_.type(found->second);
    if (!weights.shape[0].is_constant() || !weights.shape[1].is_constant()) return false;
    if (element_count(weights.shape) == ir::Dim(0)) return false;
    const bool has_panels = program_.type(op.operands[0]).dtype == DType::kF32 && packable(op);
    if (has_panels && !bytes_are_fast_) return false;
    const int64_t columns = weights.shape[0].constant(), lanes = target::lanes(DType::kF32);
    const int64_t groups = column_groups(program_, op.results[0], columns, uses_);
    const int64_t unroll = panel_unroll(groups, columns / groups, lanes, levels_.size() > 1);
    op.operands[1] = found->second;
    op.code = OpCode::kMatmulRows;
    op.attrs = {{"groups", groups}, {"width", unroll * lanes}};
    return true;
  }

  /// The block that defines the value, where the panels are made once for all steps. Null if that block is the
  /// innermost of several: there they would be made at every step.
  Level* level_for_panels(ValueId value) {
    for (size_t i = levels_.size(); i-- > 0;)
      if (levels_[i].defined.contains(value)) return i == 0 || i + 1 < levels_.size() ? &levels_[i] : nullptr;
    return nullptr;
  }

  /// The operand if the value is a cast of bf16 to f32, else kNoValue.
  ValueId narrow(ValueId value) const {
    auto found = narrow_.find(value);
    return found == narrow_.end() ? ir::kNoValue : found->second;
  }

  bool packable(const Op& op) {
    const ir::Type& weights = program_.type(op.operands[1]);
    bool floating = weights.dtype == DType::kF32 || weights.dtype == DType::kF64;
    return floating && weights.shape[0].is_constant() && weights.shape[1].is_constant() &&
           element_count(weights.shape).constant() > 0 && level_for_panels(op.operands[1]) &&
           program_.type(op.operands[0]).rank() >= 1;
  }

  /// The bf16, f16 or i8 value that the weights were cast from, else the weights.
  ValueId source_of_panels(ValueId weights) {
    auto found = widened_.find(weights);
    const ValueId source = found == widened_.end() ? narrow(weights) : found->second;
    return source != ir::kNoValue && level_for_panels(source) ? source : weights;
  }

  void pack(Op& op, bool in_loop) {
    const ir::Type& weights = program_.type(op.operands[1]);
    bool transposed = op.attr_or<bool>("transpose_b", false);
    int64_t columns = weights.shape[transposed ? 0 : 1].constant();
    int64_t lanes = target::lanes(weights.dtype);
    int64_t groups = column_groups(program_, op.results[0], columns, uses_);
    int64_t unroll = panel_unroll(groups, columns / groups, lanes, in_loop);
    const ValueId source = source_of_panels(op.operands[1]);
    const bool pairs = program_.type(source).dtype == DType::kBF16;
    op.operands[1] = panels({source, groups, unroll * lanes, transposed});
    op.code = OpCode::kMatmulPacked;
    op.attrs = {{"groups", groups}, {"n", columns}};
    if (!pairs) return;
    op.attrs["interleave"] = int64_t{2};
    if (narrow(op.operands[0]) != ir::kNoValue || is_only_rounded(op.results[0]))
      op.operands[0] = rounded(op.operands[0]);
  }

  ValueId panels(const Key& key) {
    auto [found, fresh] = packed_.try_emplace(key, ir::kNoValue);
    if (!fresh) return found->second;
    auto [weights, groups, width, transposed] = key;
    Block holder;
    ir::Attrs attrs{{"groups", groups}, {"width", width}};
    if (transposed) attrs["transpose_b"] = true;
    const DType dtype = program_.type(weights).dtype;
    if (dtype == DType::kBF16) attrs["interleave"] = int64_t{2};
    if (dtype == DType::kF16 || dtype == DType::kI8) attrs["widen"] = true;
    found->second = ir::Builder(program_, holder).emit(OpCode::kPack, {weights}, std::move(attrs));
    level_for_panels(weights)->pending.push_back(std::move(holder.ops[0]));
    return found->second;
  }

  Program& program_;
  bool bytes_are_fast_;
  Uses uses_;
  std::vector<Level> levels_;           // the body, and the regions around the current op
  std::map<ValueId, ValueId> narrow_;   // by cast of bf16 to f32 so far: its operand
  std::map<ValueId, ValueId> widened_;  // by cast of f16 or i8 to f32 so far: its operand
  std::map<ValueId, ValueId> bytes_;    // by cast of i8 so far: its operand
  std::map<ValueId, std::pair<std::vector<ValueId>, int64_t>> joined_;  // by concat of casts of bf16: operands, dim
  std::map<Key, ValueId> packed_;
  std::map<ValueId, ValueId> rounded_results_;  // by result in f32: the bf16 or f16 result that replaces it
  passes::Substitution replaced_;
};

/// The panels of a product whose weights are read as they lie.
std::optional<Panels> byte_panels(const Program& program, const Op& op) {
  const ir::Type& weights = program.type(op.operands[1]);
  const auto groups = op.attr<int64_t>("groups"), width = op.attr<int64_t>("width");
  const int64_t lanes = target::lanes(DType::kF32), unroll = width / lanes;
  if (!weights.shape[1].is_constant() || element_count(weights.shape) == ir::Dim(0)) return {};
  if (width % lanes != 0 || unroll == 0 || groups * unroll > target::kMaxPanelUnits) return {};
  return Panels{weights.shape[0].constant(), groups, unroll, lanes, DType::kI8};
}

}  // namespace

std::optional<Panels> kernel_panels(const Program& program, const Op& op) {
  if (op.code == OpCode::kMatmulRows) return byte_panels(program, op);
  const bool packs = op.code == OpCode::kPack;
  const auto interleave = op.attr_or<int64_t>("interleave", 1);
  const bool pairs = interleave == 2;
  const ir::Type& from = program.type(op.operands[0]);
  const ir::Type& panels = program.type(packs ? op.results[0] : op.operands[1]);
  const DType sums = pairs ? DType::kF32 : panels.dtype;
  if (interleave > 2 || (sums != DType::kF32 && sums != DType::kF64)) return {};
  if (panels.dtype != (pairs ? DType::kBF16 : sums)) return {};
  const bool transposed = packs && op.attr_or<bool>("transpose_b", false);
  const ir::Dim inner = packs ? from.shape[transposed ? 1 : 0] : from.shape.back();
  const int64_t columns = packs ? from.shape[transposed ? 0 : 1].constant() : op.attr<int64_t>("n");
  const auto groups = op.attr<int64_t>("groups");
  const int64_t lanes = target::lanes(sums), width = panels.shape[2].constant() / groups / (pairs ? 2 : 1);
  const int64_t unroll = width / lanes;
  if (!inner.is_constant() || inner == ir::Dim(0) || columns == 0) return {};
  if (width % lanes != 0 || unroll == 0 || groups * unroll > target::kMaxPanelUnits) return {};
  return Panels{columns, groups, unroll, lanes, panels.dtype};
}

void prepack(Program& program, runtime::ByteProducts bytes) { Prepacker(program, bytes).run(); }

}  // namespace weft::planning
