#include "planning/fusion/fuse.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "ir/builder.h"
#include "passes/loops/batch.h"
#include "planning/fusion/copies.h"
#include "planning/fusion/donations.h"
#include "planning/fusion/fusion_groups.h"

namespace weft::planning {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;
using passes::ValueMap;

/// How many carries, xs and ys a scan has.
int64_t stacks_of(const Op& scan) {
  return std::ssize(scan.operands) + std::ssize(scan.results) - scan.attr<int64_t>("carries");
}

/// Why one function of machine code cannot run the scan; empty if it can.
std::string unsupported(const LoweringRules& rules, const Op& scan) {
  auto computed = [&](ValueId v) { return rules.target().computes(rules.program().type(v).dtype); };
  for (const Op& op : scan.regions[0].ops) {
    const Lowering lowering = rules.of(op);
    const bool is_product =
        lowering == Lowering::kFused && rules.tile(op);  // the product's weights need no machine code
    if (!is_product && (!std::ranges::all_of(op.operands, computed) || !std::ranges::all_of(op.results, computed)))
      return fmt::format("{} on a type without machine code in a scan", info(op.code).name);
    if (op.code == OpCode::kScan) return "a scan in a scan";
    if (lowering == Lowering::kCall || lowering == Lowering::kControl)
      return fmt::format("{} in a scan", info(op.code).name);
  }
  if (!std::ranges::all_of(scan.regions[0].args, computed)) return "a carry or x of a type without machine code";
  return "";
}

/// How the ops of a block are run.
enum class BlockKind {
  kStages,  ///< one stage after the other: the program's body, and the steps of a loop
  kNative,  ///< as one function with the loop around it
};

/// Divides the ops of one block among stages.
class StageAssigner {
 public:
  /// `shared`: the first `shared` ops share stages. Each further op gets a stage of its own, behind all others.
  StageAssigner(const LoweringRules& rules, const Block& block, BlockKind kind, bool batched,
                size_t shared = std::numeric_limits<size_t>::max())
      : rules_(rules),
        limits_(rules.target().limits()),
        block_(block),
        batched_(batched),
        shared_(shared),
        is_body_(kind == BlockKind::kStages),
        groups_(rules, block, batched, kind == BlockKind::kStages) {}

  /// `late`: the ops that come behind all stages that may fail (donations.h). Empty: no op does.
  std::vector<Stage> run(const LateWrites& late = {}) {
    const std::vector<bool>& deferred = late.deferred;
    auto is_late = [&](size_t op) { return op < deferred.size() && deferred[op]; };
    int64_t fence = 0;
    for (size_t i = 0; i < block_.ops.size(); ++i) {
      if (is_late(i)) continue;
      assign(i);
      if (!deferred.empty() && may_fail(rules_.program(), block_.ops[i])) fence = std::max(fence, stage_of(i) + 1);
    }
    fence_ = fence;
    if (late.gate) {
      assign(*late.gate);
      fence_ = stage_of(*late.gate) + 1;
    }
    for (size_t i = 0; i < deferred.size(); ++i)
      if (is_late(i) && i != late.gate) assign(i);
    if (is_body_) delay();
    for (size_t i = 0; i < stages_.size(); ++i) finish(stages_[i], parts_[i]);
    std::erase_if(stages_, [](const Stage& stage) { return stage.ops.empty(); });
    return std::move(stages_);
  }

 private:
  /// The demands of an op, or of all ops of a stage so far, on the stage.
  struct Part {
    int64_t unroll = 0, lanes = 0, vectors = 0, rows = 0;  // of the tiles of products; 0 without products
    bool has_reduction = false;
    bool reduces_rows = false;
    int64_t size = 0;           // code_size and memory accesses
    std::set<ValueId> reads{};  // values read from memory
  };

  void assign(size_t index) {
    const Lowering lowering = groups_.lowering(index);
    if (lowering == Lowering::kView || lowering == Lowering::kAlias) return;
    const int64_t stage = lowering == Lowering::kFused ? place(index) : append(lowering);
    auto& ops = stages_[static_cast<size_t>(stage)].ops;
    const Op* op = &block_.ops[index];
    ops.insert(std::ranges::lower_bound(ops, op), op);
    for (ValueId result : op->results) stage_of_[result] = stage + 1;
  }

  int64_t append(Lowering lowering) {
    stages_.emplace_back().lowering = lowering;
    parts_.emplace_back();
    return std::ssize(stages_) - 1;
  }

  Part part_of(size_t index) const {
    const Op& op = block_.ops[index];
    Part part;
    part.has_reduction = is_reduction(op);
    part.reduces_rows = rules_.reduces_rows(op);
    if (const auto tile = rules_.tile(op)) {
      part.unroll = tile->unroll;
      part.lanes = tile->lanes;
      part.vectors = tile->groups * tile->unroll;
      part.rows = tile->rows;
    }
    part.size = rules_.target().code_size(rules_.program(), op) + limits_.access_size * accesses_of_results(op);
    for (ValueId operand : op.operands) {
      const FusionGroups::Read read = groups_.read(index, operand);
      if (!groups_.is_constant(read.root)) part.reads.insert(read.root);
    }
    return part;
  }

  /// The first stage that the op may be in: not before the stages of its operands.
  int64_t first_stage(size_t index) const {
    int64_t first = fence_;
    for (ValueId operand : block_.ops[index].operands) {
      const FusionGroups::Read read = groups_.read(index, operand);
      if (const int64_t made = stage_of_.get(read.root) - 1; read.producer >= 0 && made >= 0)
        first = std::max(first, read.same_element ? made : made + 1);
    }
    return first;
  }

  /// The first stage of the op's group that the op fits into, and that comes after what the op reads; else a new stage.
  /// Tries a few stages only: a stage with room for few ops leaves the list.
  int64_t place(size_t index) {
    constexpr int kMostTried = 16;
    const Part wanted = part_of(index);
    std::vector<int64_t>& open = open_[groups_.group(index)];
    auto it = std::ranges::lower_bound(open, first_stage(index));
    for (int tried = index < shared_ ? 0 : kMostTried; tried < kMostTried && it != open.end(); ++tried) {
      const Part& part = parts_[static_cast<size_t>(*it)];
      if (compatible(part, wanted) && has_room(*it, wanted)) {
        join(*it, wanted);
        return *it;
      }
      it = part.size > limits_.stage_size / 2 && !has_room(*it, wanted) ? open.erase(it) : it + 1;
    }
    const int64_t fresh = append(Lowering::kFused);
    Stage& stage = stages_.back();
    stage.domain = domain_of(rules_, block_.ops[index], batched_);
    stage.rank = std::ssize(stage.domain);
    open.push_back(fresh);
    join(fresh, wanted);
    return fresh;
  }

  /// A reader of an op's result.
  struct Reader {
    size_t op;
    bool same_element;
  };
  using Readers = std::vector<std::vector<Reader>>;

  /// By op: the readers of its result. None for an op whose result a region reads or the block returns.
  Readers readers() const {
    Readers found(block_.ops.size());
    passes::ValueSet seen;
    for (ValueId result : block_.results) seen.insert(groups_.root(result));
    for (const Op& op : block_.ops)
      for (const Block& region : op.regions)
        passes::for_each_use(region, [&](ValueId v) { seen.insert(groups_.root(v)); });
    for (size_t i = 0; i < block_.ops.size(); ++i) {
      if (groups_.lowering(i) == Lowering::kView || groups_.lowering(i) == Lowering::kAlias) continue;
      for (ValueId operand : block_.ops[i].operands) {
        const FusionGroups::Read read = groups_.read(i, operand);
        if (read.producer >= 0 && !seen.contains(read.root))
          found[static_cast<size_t>(read.producer)].push_back({i, read.same_element && i < shared_});
      }
    }
    return found;
  }

  int64_t stage_of(size_t op) const { return stage_of_.get(block_.ops[op].results[0]) - 1; }

  /// Whether an op only computes its own elements, each from one element of each operand.
  bool is_plain(size_t index) const {
    const Op& op = block_.ops[index];
    return groups_.lowering(index) == Lowering::kFused && !is_reduction(op) && !rules_.tile(op) &&
           !ir::is_join(op.code) && op.results.size() == 1 && index < shared_;
  }

  /// Moves elementwise ops to the stage of their first reader where the value would only wait in memory until then: 1 -
  /// y*y of a forward pass, which the backward pass reads, is made of y there. An op whose operands are kept for others
  /// anyway saves a buffer. An op that keeps one operand alive instead of its result costs nothing, and may let that
  /// operand's op follow.
  void delay() {
    const Readers readers = this->readers();
    for (size_t i = block_.ops.size(); i-- > 0;) {
      if (!is_plain(i) || readers[i].empty()) continue;
      int64_t to = std::numeric_limits<int64_t>::max();
      for (const Reader& reader : readers[i]) to = std::min(to, stage_of(reader.op));
      if (to <= stage_of(i) || stages_[static_cast<size_t>(to)].lowering != Lowering::kFused) continue;
      const bool at_its_element = std::ranges::all_of(
          readers[i], [&](const Reader& reader) { return reader.same_element || stage_of(reader.op) > to; });
      const Part wanted = part_of(i);
      if (at_its_element && kept_for(i, to, readers) <= 1 && has_room(to, wanted)) move(i, to, wanted);
    }
  }

  /// How many values would stay in memory until stage `to` for this op alone.
  int64_t kept_for(size_t index, int64_t to, const Readers& readers) const {
    std::set<ValueId> kept;
    for (ValueId operand : block_.ops[index].operands) {
      const FusionGroups::Read read = groups_.read(index, operand);
      if (read.producer < 0 || read.repeats || groups_.is_constant(read.root)) continue;
      const auto& others = readers[static_cast<size_t>(read.producer)];
      const bool is_there = others.empty() || std::ranges::any_of(others, [&](const Reader& other) {
                              return other.op != index && stage_of(other.op) >= to;
                            });
      if (!is_there) kept.insert(read.root);
    }
    return std::ssize(kept);
  }

  void move(size_t index, int64_t to, const Part& wanted) {
    const Op* op = &block_.ops[index];
    std::erase(stages_[static_cast<size_t>(stage_of(index))].ops, op);
    auto& ops = stages_[static_cast<size_t>(to)].ops;
    ops.insert(std::ranges::lower_bound(ops, op), op);
    stage_of_[op->results[0]] = to + 1;
    join(to, wanted);
  }

  /// Counts a store for each part of a concatenation.
  static int64_t accesses_of_results(const Op& op) {
    return std::ssize(ir::is_join(op.code) ? op.operands : op.results);
  }

  bool is_read(int64_t stage, ValueId root) const {
    return stage_of_.get(root) - 1 != stage && !parts_[static_cast<size_t>(stage)].reads.contains(root);
  }

  bool has_room(int64_t index, const Part& wanted) const {
    auto further = std::ranges::count_if(wanted.reads, [&](ValueId root) { return is_read(index, root); });
    return parts_[static_cast<size_t>(index)].size + wanted.size + limits_.access_size * further <= limits_.stage_size;
  }

  void join(int64_t index, const Part& wanted) {
    Part& part = parts_[static_cast<size_t>(index)];
    for (ValueId root : wanted.reads) {
      if (!is_read(index, root)) continue;
      part.reads.insert(root);
      part.size += limits_.access_size;
    }
    part.size += wanted.size;
    part.unroll = std::max(part.unroll, wanted.unroll);
    part.lanes = std::max(part.lanes, wanted.lanes);
    part.vectors = std::max(part.vectors, wanted.vectors);
    part.rows = std::max(part.rows, wanted.rows);
    part.has_reduction = part.has_reduction || wanted.has_reduction;
    part.reduces_rows = part.reduces_rows || wanted.reduces_rows;
  }

  static bool compatible(const Part& part, const Part& wanted) {
    if (wanted.unroll != 0 && part.has_reduction) return false;
    // Rows are visited column by column, or one after the other.
    if (wanted.has_reduction && part.has_reduction && wanted.reduces_rows != part.reduces_rows) return false;
    if (wanted.unroll != 0 && part.unroll != 0 && (part.unroll != wanted.unroll || part.lanes != wanted.lanes))
      return false;
    return !wanted.has_reduction || part.unroll == 0;
  }

  /// Sets the stage's vectors to as many lanes as the panels of its products have, even if it has values of wider
  /// types.
  void finish(Stage& stage, const Part& part) const {
    const Target& target = rules_.target();
    auto is_wide = [&](ValueId v) { return rules_.program().type(v).dtype == DType::kF64; };
    const bool wide = std::ranges::any_of(stage.ops, [&](const Op* op) {
      return std::ranges::any_of(op->operands, is_wide) || std::ranges::any_of(op->results, is_wide);
    });
    stage.unroll = part.unroll;
    stage.has_reduction = part.has_reduction;
    if (part.reduces_rows) stage.row_group = stage.domain[stage.domain.size() - 2].constant();
    stage.lanes = part.lanes != 0 ? part.lanes : target.lanes(wide ? DType::kF64 : DType::kF32);
    stage.row_block = target.row_block(part.vectors, stage.lanes);
    stage.tile_rows = std::max(stage.row_block, part.rows);
  }

  const LoweringRules& rules_;
  const Limits& limits_;
  const Block& block_;
  bool batched_;
  size_t shared_;
  bool is_body_;
  int64_t fence_ = 0;  ///< the first stage that ops may be placed in
  FusionGroups groups_;
  std::vector<Stage> stages_;
  std::vector<Part> parts_;                                  // by stage
  std::unordered_map<uint32_t, std::vector<int64_t>> open_;  // by group: the stages that may have room, in order
  ValueMap<int64_t> stage_of_;                               // the index plus one; 0 for none
};

/// Divides a program's blocks, the inner ones first.
class Fuser {
 public:
  Fuser(Program& program, LoweringRules& rules) : program_(program), rules_(rules), definitions_(rules) {}

  FusedBlocks run() {
    fuse_block(program_.body, BlockKind::kStages, false);
    return std::move(blocks_);
  }

 private:
  ScanDecision decide(const Op& scan) const {
    const bool ragged = scan.has("rows");
    const Target& target = rules_.target();
    const Limits& limits = target.limits();
    ScanDecision decision;
    decision.reason = unsupported(rules_, scan);
    decision.batched = passes::is_batched(program_, scan) &&
                       (ragged || !passes::has_short_rows(program_, scan, target.lanes(DType::kF32)));
    if (decision.reason.empty() && ragged && !decision.batched)
      decision.reason = "rows of a ragged scan that depend on each other";
    // A ragged scan that is not one function can only run in the interpreter.
    if (decision.reason.empty() && !ragged && stacks_of(scan) > limits.stacks_a_function)
      decision.reason = fmt::format("more than {} carries, xs and ys in a scan", limits.stacks_a_function);
    if (decision.reason.empty() && !ragged &&
        std::ssize(StageAssigner(rules_, scan.regions[0], BlockKind::kNative, decision.batched).run()) >
            limits.stages_a_function)
      decision.reason = fmt::format("more than {} stages in a scan", limits.stages_a_function);
    if (decision.reason.empty()) return decision;
    decision.lowering = ragged ? Lowering::kCall : Lowering::kLoop;
    decision.batched = false;
    return decision;
  }

  /// Returns the copies of values from around the regions, which the regions need.
  std::vector<Op> fuse_regions(Op& op) {
    std::vector<Op> outside;
    auto fuse_region = [&](Block& region, BlockKind kind, bool batched) {
      std::ranges::move(fuse_block(region, kind, batched), std::back_inserter(outside));
    };
    if (op.code == OpCode::kScan) {
      rules_.decide(op, decide(op));
      const ScanDecision& decision = rules_.decision(op);
      if (decision.lowering == Lowering::kScan) fuse_region(op.regions[0], BlockKind::kNative, decision.batched);
      if (decision.lowering == Lowering::kLoop) fuse_region(op.regions[0], BlockKind::kStages, false);
    } else {
      for (Block& region : op.regions) fuse_region(region, BlockKind::kStages, false);
    }
    return outside;
  }

  std::vector<Op> fuse_block(Block& block, BlockKind kind, bool batched) {
    std::vector<Op> ops, outside;
    const passes::ValueSet here = passes::defined_in(block);
    for (Op& op : block.ops) {
      for (Op& copy : fuse_regions(op)) (here.contains(copy.operands[0]) ? ops : outside).push_back(std::move(copy));
      ops.push_back(std::move(op));
    }
    block.ops = std::move(ops);
    if (kind == BlockKind::kStages) find_ranges(block, definitions_, rules_);
    std::ranges::move(insert_copies(program_, block, definitions_, rules_, kind == BlockKind::kNative),
                      std::back_inserter(outside));
    const bool donates = &block == &program_.body && !program_.donations.empty();
    LateWrites late;
    if (donates) late = late_writes(rules_);
    blocks_[&block] = StageAssigner(rules_, block, kind, batched).run(late);
    if (donates) copy_donated(std::move(late));
    return outside;
  }

  /// Copies results that would be written too early into the memory of their inputs (donations.h).
  void copy_donated(LateWrites late) {
    Block& body = program_.body;
    const size_t shared = body.ops.size();
    std::vector<size_t> early = written_too_early(rules_, blocks_.at(&body));
    early.insert(early.end(), late.copied.begin(), late.copied.end());
    std::ranges::sort(early);
    early.erase(std::unique(early.begin(), early.end()), early.end());
    ir::Builder builder(program_, body);
    for (size_t result : early) body.results[result] = builder.unary(OpCode::kCopy, body.results[result]);
    if (body.ops.size() == shared) return;
    late.deferred.resize(body.ops.size(), true);
    blocks_[&body] = StageAssigner(rules_, body, BlockKind::kStages, false, shared).run(late);
  }

  Program& program_;
  LoweringRules& rules_;
  Definitions definitions_;
  FusedBlocks blocks_;
};

}  // namespace

FusedBlocks fuse(Program& program, LoweringRules& rules) { return Fuser(program, rules).run(); }

}  // namespace weft::planning
