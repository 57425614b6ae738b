#include "passes/fuse.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/builder.h"
#include "passes/batch.h"
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

/// Whether the op's kernel takes operands with a stride between rows: products over rows and sums down columns.
bool reads_rows(const Program& program, const Op& op) {
  if (op.code != OpCode::kOuter && op.code != OpCode::kReduceSum) return false;
  const ir::Type& type = program.type(op.operands[0]);
  if (type.dtype != DType::kF32 && type.dtype != DType::kF64) return false;
  if (op.code == OpCode::kOuter) return true;
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  return static_cast<int64_t>(dims.size()) == type.rank() - 1 && std::ranges::find(dims, type.rank() - 1) == dims.end();
}

bool all_native(const Program& program, const Op& op) {
  auto native = [&](ValueId v) { return is_native(program.type(v).dtype); };
  return std::ranges::all_of(op.operands, native) && std::ranges::all_of(op.results, native);
}

/// Why machine code cannot run this scan; empty if it can.
std::string unsupported(const Program& program, const Op& scan) {
  for (const Op& op : scan.regions[0].ops) {
    Lowering lowering = lowering_of(program, op);
    if (!all_native(program, op)) return fmt::format("{} on a type without machine code in a scan", info(op.code).name);
    if (lowering == Lowering::kScan) return "a scan in a scan";
    if (lowering == Lowering::kCall) return fmt::format("{} in a scan", info(op.code).name);
  }
  for (ValueId arg : scan.regions[0].args)
    if (!is_native(program.type(arg).dtype)) return "a carry or x of a type without machine code";
  return "";
}

/// Joined columns of one value's memory that only such kernels read: they take the ranges as they are, so the
/// concatenation is a view, marked `ranges`.
class RangeMarker {
 public:
  RangeMarker(const Program& program, Block& block) : program_(program), block_(block) {
    for (Op& op : block.ops) {
      for (ValueId result : op.results) definition_[result] = &op;
      bool takes_ranges = reads_rows(program, op);
      for (ValueId operand : op.operands)
        if (!takes_ranges) other_reads_.insert(operand);
      for (const Block& region : op.regions) for_each_use(region, [&](ValueId v) { other_reads_.insert(v); });
    }
    other_reads_.insert(block.results.begin(), block.results.end());
  }

  void run() {
    for (Op& op : block_.ops)
      if (op.code == OpCode::kConcat && !other_reads_.contains(op.results[0]) && joins_columns(op))
        op.attrs["ranges"] = true;
  }

 private:
  bool joins_columns(const Op& op) const {
    if (op.attr<int64_t>("dim") != program_.type(op.results[0]).rank() - 1) return false;
    ValueId root = root_of(op.operands[0]);
    auto made = definition_.find(root);
    bool memory = made == definition_.end() || !is_view(made->second->code);
    return memory && program_.type(root).shape.back().is_constant() && std::ranges::all_of(op.operands, [&](ValueId v) {
             return root_of(v) == root && program_.type(v).shape.back().is_constant();
           });
  }

  /// What the value is a slice of columns of.
  ValueId root_of(ValueId value) const {
    for (auto found = definition_.find(value); found != definition_.end(); found = definition_.find(value)) {
      const Op& op = *found->second;
      if (op.code != OpCode::kSlice || op.attr<int64_t>("dim") != program_.type(value).rank() - 1) break;
      value = op.operands[0];
    }
    return value;
  }

  const Program& program_;
  Block& block_;
  std::map<ValueId, Op*> definition_;
  std::set<ValueId> other_reads_;
};

/// Gives memory of its own, by a copy, to every value that will be read as memory but has none.
class CopyInserter {
 public:
  CopyInserter(Program& program, Block& block, bool region) : program_(program), block_(block), region_(region) {}

  void run() {
    for (Op& op : block_.ops) {
      prepare(op);
      for (ValueId result : op.results) defined_[result] = {op.code, last_dim_slice(op), op.operands};
      ops_.push_back(std::move(op));
    }
    std::set<ValueId> seen;
    for (ValueId& result : block_.results) {
      auto found = defined_.find(result);
      bool owns = found != defined_.end() && !is_view(found->second.code) && found->second.code != OpCode::kReshape;
      bool repeated = !seen.insert(result).second;
      if (!owns || (repeated && !region_)) result = copy(result);
    }
    block_.ops = std::move(ops_);
  }

 private:
  struct Definition {
    OpCode code;
    bool last_dim_slice;
    std::vector<ValueId> operands;
  };

  bool last_dim_slice(const Op& op) const {
    return op.code == OpCode::kSlice && op.attr<int64_t>("dim") == program_.type(op.operands[0]).rank() - 1;
  }

  bool is_view_value(ValueId value) const {
    auto found = defined_.find(value);
    return found != defined_.end() && is_view(found->second.code);
  }

  /// Rows of columns: memory, a slice of the columns of memory, or what RangeMarker has marked.
  bool is_row_view(ValueId value) const {
    auto found = defined_.find(value);
    while (found != defined_.end() && found->second.last_dim_slice) found = defined_.find(found->second.operands[0]);
    return found == defined_.end() || !is_view(found->second.code);
  }

  /// A slice of a matrix of constant columns, which `pack` reads in place.
  bool is_matrix_slice(ValueId value) const {
    auto found = defined_.find(value);
    while (found != defined_.end() && found->second.code == OpCode::kSlice) {
      value = found->second.operands[0];
      found = defined_.find(value);
    }
    return (found == defined_.end() || !is_view(found->second.code)) && program_.type(value).shape.back().is_constant();
  }

  void prepare(Op& op) {
    if (op.code == OpCode::kPack && is_matrix_slice(op.operands[0])) return;
    switch (lowering_of(program_, op)) {
      case Lowering::kView:
        return;
      case Lowering::kFused:
        if (op.code == OpCode::kMatmulPacked && !is_row_view(op.operands[0])) op.operands[0] = copy(op.operands[0]);
        return;
      default:
        for (ValueId& operand : op.operands) {
          if (reads_rows(program_, op) ? !is_row_view(operand) : is_view_value(operand)) operand = copy(operand);
        }
    }
  }

  ValueId copy(ValueId value) {
    Block holder;
    ValueId result = ir::Builder(program_, holder).unary(OpCode::kCopy, value);
    Op& op = holder.ops[0];
    defined_[result] = {OpCode::kCopy, false, op.operands};
    ops_.push_back(std::move(op));
    return result;
  }

  Program& program_;
  Block& block_;
  bool region_;  // a region may yield one value twice: it is stored to both places
  std::vector<Op> ops_;
  std::map<ValueId, Definition> defined_;
};

/// Numbers the stages of one block.
class StageAssigner {
 public:
  StageAssigner(Program& program, Block& block, bool batched) : program_(program), block_(block), batched_(batched) {}

  void run() {
    for (Op& op : block_.ops) {
      for (ValueId result : op.results) definition_[result] = &op;
      Lowering lowering = lowering_of(program_, op);
      if (lowering == Lowering::kView || lowering == Lowering::kAlias) continue;
      int64_t stage = lowering == Lowering::kFused ? place(op) : append(Stage{});
      op.attrs["stage"] = stage;
      for (ValueId result : op.results) stage_of_[result] = stage;
    }
  }

 private:
  struct Stage {
    bool fused = false;
    Shape domain;
    int64_t unroll = 0;  // of its products; 0 without
    bool has_reduction = false;
  };

  int64_t append(Stage stage) {
    stages_.push_back(std::move(stage));
    return static_cast<int64_t>(stages_.size()) - 1;
  }

  int64_t place(Op& op) {
    Stage wanted{true, domain_of(program_, op, batched_), 0, is_reduction(op)};
    if (op.code == OpCode::kMatmulPacked) wanted.unroll = op.attr<int64_t>("unroll");
    int64_t lower = 0;
    for (ValueId operand : op.operands) lower = std::max(lower, earliest(op, operand, wanted));
    for (int64_t i = lower; i < static_cast<int64_t>(stages_.size()); ++i)
      if (join(stages_[i], wanted)) return i;
    return append(wanted);
  }

  static bool join(Stage& stage, const Stage& wanted) {
    if (!stage.fused || stage.domain != wanted.domain) return false;
    if (wanted.unroll != 0 && (stage.has_reduction || (stage.unroll != 0 && stage.unroll != wanted.unroll)))
      return false;
    if (wanted.has_reduction && stage.unroll != 0) return false;
    stage.unroll = std::max(stage.unroll, wanted.unroll);
    stage.has_reduction = stage.has_reduction || wanted.has_reduction;
    return true;
  }

  /// The first stage in which `op` can read `value`.
  int64_t earliest(const Op& op, ValueId value, const Stage& wanted) const {
    bool elsewhere = op.code == OpCode::kMatmulPacked;  // reads whole rows
    const Op* slice = nullptr;
    int64_t slices = 0;
    auto found = definition_.find(value);
    while (found != definition_.end()) {
      const Op& def = *found->second;
      if (def.code == OpCode::kSlice) {
        slice = &def;
        ++slices;
      } else if (def.code == OpCode::kBroadcast || def.code == OpCode::kReshape) {
        elsewhere = true;
      } else {
        break;
      }
      value = def.operands[0];
      found = definition_.find(value);
    }
    auto stage = stage_of_.find(value);
    if (stage == stage_of_.end()) return 0;
    const Op& producer = *definition_.at(value);
    bool reduction = is_reduction(producer);
    bool concat = producer.code == OpCode::kConcat;
    bool gates = slices == 1 && producer.code == OpCode::kMatmulPacked && is_gate(producer, *slice);
    bool same_element = !elsewhere && !reduction && !concat && (slices == 0 || gates) && stages_[stage->second].fused &&
                        stages_[stage->second].domain == wanted.domain &&
                        (slices > 0 || producer.attr_or<int64_t>("groups", 1) == 1);
    return same_element ? stage->second : stage->second + 1;
  }

  bool is_gate(const Op& product, const Op& slice) const {
    int64_t width = product.attr<int64_t>("n") / product.attr<int64_t>("groups");
    return slice.attr<int64_t>("dim") == program_.type(product.results[0]).rank() - 1 &&
           slice.attr<int64_t>("limit") - slice.attr<int64_t>("start") == width &&
           slice.attr<int64_t>("start") % width == 0;
  }

  Program& program_;
  Block& block_;
  bool batched_;
  std::vector<Stage> stages_;
  std::map<ValueId, const Op*> definition_;
  std::map<ValueId, int64_t> stage_of_;
};

void fuse_block(Program& program, Block& block, bool region, bool batched) {
  for (Op& op : block.ops) {
    if (op.code != OpCode::kScan) continue;
    if (std::string reason = unsupported(program, op); !reason.empty()) {
      op.attrs["fallback"] = reason;
      continue;
    }
    bool rows = is_batched(program, op);
    if (op.has("rows") && !rows) {
      op.attrs["fallback"] = std::string("rows of a ragged scan that depend on each other");
      continue;
    }
    if (rows) op.attrs["batched"] = true;
    fuse_block(program, op.regions[0], true, rows);
  }
  if (!region) RangeMarker(program, block).run();
  CopyInserter(program, block, region).run();
  StageAssigner(program, block, batched).run();
}

}  // namespace

bool is_view(OpCode code) { return code == OpCode::kConstant || code == OpCode::kBroadcast || code == OpCode::kSlice; }

bool is_reduction(const Op& op) { return info(op.code).op_class == OpClass::kReduction; }

bool is_native(DType dtype) {
  return is_floating(dtype) || dtype == DType::kBool || dtype == DType::kI32 || dtype == DType::kI64;
}

Lowering lowering_of(const Program& program, const Op& op) {
  if (op.code == OpCode::kScan) return Lowering::kScan;
  if (op.code == OpCode::kReshape) return Lowering::kAlias;
  if (!all_native(program, op)) return Lowering::kCall;
  if (is_view(op.code) || op.has("ranges")) return Lowering::kView;
  // Division by zero is the user's error in integers, which machine code cannot raise.
  if (op.code == OpCode::kDiv && !is_floating(program.type(op.results[0]).dtype)) return Lowering::kCall;
  if (info(op.code).op_class == OpClass::kElementwise) return Lowering::kFused;
  if (op.code == OpCode::kMatmulPacked) {
    DType dtype = program.type(op.results[0]).dtype;  // what there are micro-kernels for: sums of these types
    return dtype == DType::kF32 || dtype == DType::kF64 ? Lowering::kFused : Lowering::kCall;
  }
  if (is_reduction(op)) return reduces_last_dim_only(program, op) ? Lowering::kFused : Lowering::kCall;
  if (op.code == OpCode::kPad && op.attr<int64_t>("dim") == program.type(op.results[0]).rank() - 1)
    return Lowering::kRowCopy;
  if (op.code == OpCode::kConcat) {
    if (has_equal_columns(program, op)) return Lowering::kFused;
    bool last = op.attr<int64_t>("dim") == program.type(op.results[0]).rank() - 1;
    return last ? Lowering::kRowCopy : Lowering::kCall;
  }
  return Lowering::kCall;
}

Shape domain_of(const Program& program, const Op& op, bool batched) {
  bool reads_operand = is_reduction(op) || op.code == OpCode::kConcat;
  Shape shape = program.type(reads_operand ? op.operands[0] : op.results[0]).shape;
  if (op.code == OpCode::kMatmulPacked) shape.back() = op.attr<int64_t>("n") / op.attr<int64_t>("groups");
  if (shape.empty() || (batched && shape.size() == 1)) shape.push_back(1);
  return shape;
}

void fuse(Program& program) { fuse_block(program, program.body, false, false); }

}  // namespace weft::passes
