#include "passes/layout/fuse.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "passes/layout/code_size.h"
#include "passes/layout/copies.h"
#include "passes/layout/donations.h"
#include "passes/layout/fusion_groups.h"
#include "passes/layout/prepack.h"
#include "passes/loops/batch.h"
#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Program;
using ir::Shape;
using ir::ValueId;

bool reduces_last_dim_only(const Program& program, const Op& op) {
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  return dims.size() == 1 && dims[0] == program.type(op.operands[0]).rank() - 1;
}

bool has_equal_columns(const Program& program, const Op& concat) {
  int64_t last = program.type(concat.results[0]).rank() - 1;
  if (concat.attr<int64_t>("dim") != last) return false;
  const Shape& first = program.type(concat.operands[0]).shape;
  return first.back().is_constant() &&
         std::ranges::all_of(concat.operands, [&](ValueId v) { return program.type(v).shape == first; });
}

bool all_native(const Program& program, const Op& op) {
  auto native = [&](ValueId v) { return is_native(program.type(v).dtype); };
  return std::ranges::all_of(op.operands, native) && std::ranges::all_of(op.results, native);
}

/// How many carries, xs and ys a scan has.
int64_t stacks_of(const Op& scan) {
  return std::ssize(scan.operands) + std::ssize(scan.results) - scan.attr<int64_t>("carries");
}

/// Why one function of machine code cannot run this scan; empty if it can.
std::string unsupported(const Program& program, const Op& scan) {
  for (const Op& op : scan.regions[0].ops) {
    Lowering lowering = lowering_of(program, op);
    if (!all_native(program, op)) return fmt::format("{} on a type without machine code in a scan", info(op.code).name);
    if (lowering == Lowering::kScan) return "a scan in a scan";
    if (lowering == Lowering::kCall || lowering == Lowering::kControl)
      return fmt::format("{} in a scan", info(op.code).name);
  }
  for (ValueId arg : scan.regions[0].args)
    if (!is_native(program.type(arg).dtype)) return "a carry or x of a type without machine code";
  return "";
}

bool divides_integers(const Program& program, const Op& op) {
  return (op.code == OpCode::kDiv || op.code == OpCode::kRem) && !is_floating(program.type(op.results[0]).dtype);
}

/// Marks integer divisions that can't fail as `nonzero`: those by a constant other than 0 and -1. (The processor traps
/// on the least integer divided by -1.)
class DivisorMarker {
 public:
  explicit DivisorMarker(const Program& program) : program_(program) {}

  void run(Block& block) {
    for (Op& op : block.ops) {
      for (ValueId result : op.results) definition_[result] = &op;
      for (Block& region : op.regions) run(region);
      if (divides_integers(program_, op) && is_harmless(op.operands[1])) op.attrs["nonzero"] = true;
    }
  }

 private:
  bool is_harmless(ValueId value) const {
    auto found = definition_.find(value);
    while (found != definition_.end() &&
           (found->second->code == OpCode::kBroadcast || found->second->code == OpCode::kReshape))
      found = definition_.find(found->second->operands[0]);
    if (found == definition_.end() || found->second->code != OpCode::kConstant) return false;
    auto divisor = found->second->attr<double>("value");
    return divisor != 0 && divisor != -1;
  }

  const Program& program_;
  std::unordered_map<ValueId, const Op*> definition_;
};

/// The size of the code that loads or stores one value, in the unit of code_size.
constexpr int64_t kMemoryAccess = 12;

/// The largest stage. LLVM selects and schedules instructions by basic blocks, and a stage is one. Beyond a few
/// thousand instructions (a few hundred loads and stores) its time grows with the square. Measured, in microseconds an
/// LLVM instruction: alternating tanh and neg; tanh whose values all stay live; additions of a new input each:
///
///     instructions   700   1400   2800   5500   11000   21000   42000
///     tanh, neg       37     41     33     29      47      56     150
///     live on         61     56     65     52      81     167
///     inputs          60     66     76    146     281
///
/// AVX2 takes 3 times as long and grows from 2800 on, generic x86 takes 7 times.
constexpr int64_t kLargestStage = 4096;

/// The most stages of a scan that is one function. LLVM's time grows with the square of the number of loops too
/// (induction variables, register allocation): with 32, 128, 256, 500 and 1000 stages it takes 4, 5, 6, 18 and 54 ms a
/// pair of stages.
constexpr int64_t kMostStagesOfFunction = 128;

/// The most carries, xs and ys of such a scan: with 250, 500 and 1000 carries LLVM takes 4, 7 and 13 ms a carry.
constexpr int64_t kMostStacksOfFunction = 256;

/// The most parts of a concatenation in machine code. More parts are copied by one kernel of the runtime.
constexpr size_t kMostParts = 128;

/// How the ops of a block are run.
enum class BlockKind {
  kStages,  ///< one stage after the other: the program's body, and the steps of a loop
  kNative,  ///< as one function with the loop around it
};

/// Numbers the stages of one block.
class StageAssigner {
 public:
  StageAssigner(Program& program, Block& block, BlockKind kind, bool batched)
      : program_(program), block_(block), groups_(program, block, batched, kind == BlockKind::kStages) {}

  /// The number of stages.
  int64_t run() {
    for (size_t i = 0; i < block_.ops.size(); ++i) {
      const Lowering lowering = groups_.lowering(i);
      if (lowering == Lowering::kView || lowering == Lowering::kAlias) continue;
      const int64_t stage = lowering == Lowering::kFused ? place(i) : append(Stage{});
      block_.ops[i].attrs["stage"] = stage;
      for (ValueId result : block_.ops[i].results) stage_of_[result] = stage + 1;
    }
    return static_cast<int64_t>(stages_.size());
  }

 private:
  struct Stage {
    int64_t unroll = 0, lanes = 0;  // of its products; 0 without
    bool has_reduction = false;
    int64_t size = 0;           // code_size and memory accesses
    std::set<ValueId> reads{};  // from memory
  };

  int64_t append(Stage stage) {
    stages_.push_back(std::move(stage));
    return static_cast<int64_t>(stages_.size()) - 1;
  }

  /// The first stage of the op's group, not before what it reads, that it fits into. Few are tried: those that have no
  /// room for most ops are no longer among them.
  int64_t place(size_t index) {
    constexpr int kMostTried = 16;
    const Op& op = block_.ops[index];
    Stage wanted;
    wanted.has_reduction = is_reduction(op);
    if (op.code == OpCode::kMatmulPacked) {
      wanted.unroll = op.attr<int64_t>("unroll");
      wanted.lanes = op.attr<int64_t>("lanes");
    }
    wanted.size = code_size(program_, op) + kMemoryAccess * accesses_of_results(op);
    int64_t lower = 0;
    for (ValueId operand : op.operands) {
      const FusionGroups::Read read = groups_.read(index, operand);
      if (const int64_t made = stage_of_.get(read.root) - 1; read.producer >= 0 && made >= 0)
        lower = std::max(lower, read.same_element ? made : made + 1);
      if (!groups_.is_constant(read.root)) wanted.reads.insert(read.root);
    }
    std::vector<int64_t>& open = open_[groups_.group(index)];
    auto it = std::ranges::lower_bound(open, lower);
    for (int tried = 0; tried < kMostTried && it != open.end(); ++tried) {
      Stage& stage = stages_[static_cast<size_t>(*it)];
      if (compatible(stage, wanted) && has_room(*it, wanted)) {
        join(*it, wanted);
        return *it;
      }
      it = stage.size > kLargestStage / 2 && !has_room(*it, wanted) ? open.erase(it) : it + 1;
    }
    int64_t fresh = append(Stage{});
    open.push_back(fresh);
    join(fresh, wanted);
    return fresh;
  }

  /// A concatenation has a store for each part.
  static int64_t accesses_of_results(const Op& op) {
    return static_cast<int64_t>(op.code == OpCode::kConcat ? op.operands.size() : op.results.size());
  }

  bool is_read(int64_t stage, ValueId root) const {
    return stage_of_.get(root) - 1 != stage && !stages_[static_cast<size_t>(stage)].reads.contains(root);
  }

  bool has_room(int64_t index, const Stage& wanted) const {
    auto further = std::ranges::count_if(wanted.reads, [&](ValueId root) { return is_read(index, root); });
    return stages_[static_cast<size_t>(index)].size + wanted.size + kMemoryAccess * further <= kLargestStage;
  }

  void join(int64_t index, const Stage& wanted) {
    Stage& stage = stages_[static_cast<size_t>(index)];
    for (ValueId root : wanted.reads) {
      if (!is_read(index, root)) continue;
      stage.reads.insert(root);
      stage.size += kMemoryAccess;
    }
    stage.size += wanted.size;
    stage.unroll = std::max(stage.unroll, wanted.unroll);
    stage.lanes = std::max(stage.lanes, wanted.lanes);
    stage.has_reduction = stage.has_reduction || wanted.has_reduction;
  }

  static bool compatible(const Stage& stage, const Stage& wanted) {
    if (wanted.unroll != 0 && stage.has_reduction) return false;
    if (wanted.unroll != 0 && stage.unroll != 0 && (stage.unroll != wanted.unroll || stage.lanes != wanted.lanes))
      return false;
    return !wanted.has_reduction || stage.unroll == 0;
  }

  Program& program_;
  Block& block_;
  FusionGroups groups_;
  std::vector<Stage> stages_;
  std::unordered_map<uint32_t, std::vector<int64_t>> open_;  // stages of each group that may have room, in order
  ValueMap<int64_t> stage_of_;                               // plus one; 0 for none
};

/// Returns the copies that the block needs of values from around it.
std::vector<Op> fuse_block(Program& program, Block& block, BlockKind kind, bool batched, Definitions& definitions);

/// Chooses how a scan runs, and fuses its region.
std::vector<Op> fuse_scan(Program& program, Op& scan, Definitions& definitions) {
  std::string reason = unsupported(program, scan);
  const bool ragged = scan.has("rows");
  bool rows = is_batched(program, scan) && (ragged || !has_short_rows(program, scan));
  if (reason.empty() && ragged && !rows) reason = "rows of a ragged scan that depend on each other";
  // A ragged scan that is not one function can only run in the interpreter.
  if (reason.empty() && !ragged && stacks_of(scan) > kMostStacksOfFunction)
    reason = fmt::format("more than {} carries, xs and ys in a scan", kMostStacksOfFunction);
  if (reason.empty() && !ragged &&
      StageAssigner(program, scan.regions[0], BlockKind::kNative, rows).run() > kMostStagesOfFunction)
    reason = fmt::format("more than {} stages in a scan", kMostStagesOfFunction);
  if (reason.empty()) {
    if (rows) scan.attrs["batched"] = true;
    return fuse_block(program, scan.regions[0], BlockKind::kNative, rows, definitions);
  }
  if (scan.has("rows")) {
    scan.attrs["fallback"] = std::move(reason);
    return {};
  }
  scan.attrs["loop"] = std::move(reason);
  return fuse_block(program, scan.regions[0], BlockKind::kStages, false, definitions);
}

std::vector<Op> fuse_regions(Program& program, Op& op, Definitions& definitions) {
  if (op.code == OpCode::kScan) return fuse_scan(program, op, definitions);
  std::vector<Op> outside;
  for (Block& region : op.regions)
    for (Op& copy : fuse_block(program, region, BlockKind::kStages, false, definitions))
      outside.push_back(std::move(copy));
  return outside;
}

std::vector<Op> fuse_block(Program& program, Block& block, BlockKind kind, bool batched, Definitions& definitions) {
  std::vector<Op> ops, outside;
  const ValueSet here = defined_in(block);
  for (Op& op : block.ops) {
    for (Op& copy : fuse_regions(program, op, definitions))
      (here.contains(copy.operands[0]) ? ops : outside).push_back(std::move(copy));
    ops.push_back(std::move(op));
  }
  block.ops = std::move(ops);
  if (kind == BlockKind::kStages) mark_ranges(program, block, definitions);
  for (Op& copy : insert_copies(program, block, definitions, kind == BlockKind::kNative))
    outside.push_back(std::move(copy));
  StageAssigner(program, block, kind, batched).run();
  return outside;
}

}  // namespace

bool is_view(OpCode code) { return ir::traits_of(code).codegen == ir::Codegen::kView; }

bool is_reduction(const Op& op) { return info(op.code).op_class == OpClass::kReduction; }

bool is_native(DType dtype) {
  return is_floating(dtype) || dtype == DType::kBool || dtype == DType::kI32 || dtype == DType::kI64;
}

Lowering lowering_of(const Program& program, const Op& op) {
  using ir::Codegen;
  const Codegen way = ir::traits_of(op.code).codegen;
  if (way == Codegen::kScan) return Lowering::kScan;
  if (way == Codegen::kRegions) return Lowering::kControl;
  if (way == Codegen::kAlias) return Lowering::kAlias;
  if (!all_native(program, op)) return Lowering::kCall;
  if (way == Codegen::kView || op.has("ranges")) return Lowering::kView;
  // Division by zero is the user's error in integers, which machine code cannot raise.
  if (divides_integers(program, op) && !op.has("nonzero")) return Lowering::kCall;
  if (way == Codegen::kPointwise) return Lowering::kFused;
  if (way == Codegen::kProduct) return has_kernel_layout(program, op) ? Lowering::kFused : Lowering::kCall;
  if (way == Codegen::kReduction) return reduces_last_dim_only(program, op) ? Lowering::kFused : Lowering::kCall;
  if ((way != Codegen::kRows && way != Codegen::kJoin) || op.operands.size() > kMostParts) return Lowering::kCall;
  if (way == Codegen::kJoin && has_equal_columns(program, op)) return Lowering::kFused;
  const bool last = op.attr<int64_t>("dim") == program.type(op.results[0]).rank() - 1;
  return last ? Lowering::kRowCopy : Lowering::kCall;
}

Shape domain_of(const Program& program, const Op& op, bool batched) {
  bool reads_operand = is_reduction(op) || op.code == OpCode::kConcat;
  Shape shape = program.type(reads_operand ? op.operands[0] : op.results[0]).shape;
  if (op.code == OpCode::kMatmulPacked) shape.back() = op.attr<int64_t>("n") / op.attr<int64_t>("groups");
  if (shape.empty() || (batched && shape.size() == 1)) shape.push_back(1);
  return shape;
}

void drop_annotations(Block& block) {
  for (Op& op : block.ops) {
    for (const ir::Annotation& annotation : ir::annotations())
      if (annotation.by_fuse)
        if (auto found = op.attrs.find(annotation.name); found != op.attrs.end()) op.attrs.erase(found);
    for (Block& region : op.regions) drop_annotations(region);
  }
}

void fuse(Program& program) {
  drop_annotations(program.body);
  DivisorMarker(program).run(program.body);
  Definitions definitions(program);
  fuse_block(program, program.body, BlockKind::kStages, false, definitions);
  order_donated_writes(program);
}

}  // namespace weft::passes
