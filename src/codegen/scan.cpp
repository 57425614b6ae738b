#include "codegen/scan.h"

#include <algorithm>

#include "codegen/access.h"
#include "codegen/rows.h"

namespace weft::codegen {
namespace {

using ir::Op;
using ir::OpCode;
using ir::ValueId;
using llvm::Value;
using passes::Lowering;

constexpr int64_t kLine = 64;

/// Bytes of one instance of a value's buffer (runtime::instance_bytes).
Value* instance_bytes(Frame& frame, const ir::Type& type) {
  Value* bytes = frame.b.CreateMul(frame.size(element_count(type.shape)), frame.i64(size_of(type.dtype)));
  Value* padded = frame.b.CreateAdd(bytes, frame.i64(kLine - 1));
  return frame.b.CreateAnd(padded, frame.i64(-kLine));
}

class ScanLoop {
 public:
  ScanLoop(Frame& frame, const Op& op) : frame_(frame), b_(frame.b), view_(op), scan_(frame.schedule.scans.at(&op)) {
    frame_.batched = scan_.block.batched;
    barriers_ = barriers_before(frame_, view_, scan_.block);
  }

  void emit() {
    Value* length = frame_.size(view_.length);
    std::vector<Value*> carries;
    for (ValueId init : view_.inits) carries.push_back(frame_.address(init));
    if (view_.ragged) {
      emit_ragged(length, std::move(carries));
      return;
    }
    frame_.loop(frame_.i64(0), length, 1, carries, [&](Value* step, const std::vector<Value*>& current) {
      begin_step(step, length);
      std::vector<Value*> next = set_addresses(current);
      emit_stages();
      return next;
    });
  }

 private:
  /// The steps of a ragged scan also carry where their rows begin among the packed ones, and how many rows the step
  /// before had. Rows that end or enter between two steps change buffers there.
  void emit_ragged(Value* length, std::vector<Value*> carried) {
    Value* last = b_.CreateSub(length, frame_.i64(1));
    carried.push_back(view_.reverse ? frame_.size(view_.ragged->packed) : frame_.i64(0));
    carried.push_back(batch_size(view_.reverse ? last : frame_.i64(0)));
    frame_.loop(frame_.i64(0), length, 1, carried, [&](Value* step, std::vector<Value*> current) {
      Value* rows_before = current.back();
      Value* offset = current[current.size() - 2];
      current.resize(current.size() - 2);
      begin_step(step, length);
      Value* rows = batch_size(time_);
      offset_ = view_.reverse ? b_.CreateSub(offset, rows) : offset;
      last_row_ = frame_.minimum(frame_.hi, rows);
      if (view_.reverse)
        enter_rows(current, rows_before, rows);
      else
        end_rows(current, rows, rows_before);
      std::vector<Value*> next = set_addresses(current);
      if_less(frame_.lo, last_row_, [&] { emit_stages(); });
      next.push_back(view_.reverse ? offset_ : b_.CreateAdd(offset, rows));
      next.push_back(rows);
      return next;
    });
  }

  Value* batch_size(Value* time) {
    Value* address = frame_.offset(frame_.address(view_.ragged->batch_sizes), time, size_of(DType::kI64));
    return b_.CreateAlignedLoad(b_.getInt64Ty(), address, llvm::Align(8));
  }

  void begin_step(Value* step, Value* length) {
    Value* last = b_.CreateSub(length, frame_.i64(1));
    time_ = view_.reverse ? b_.CreateSub(last, step) : step;
    parity_ = b_.CreateAnd(step, frame_.i64(1));
    is_last_ = b_.CreateICmpEQ(step, last);
    // Every other step backwards: what the step before left in the cache, of weights larger than it, is read again.
    frame_.backwards = b_.CreateICmpNE(parity_, frame_.i64(0));
  }

  /// Where the step reads and writes; the carries' places in the next step.
  std::vector<Value*> set_addresses(const std::vector<Value*>& current) {
    frame_.targets.clear();
    for (size_t i = 0; i < view_.x_args.size(); ++i)
      frame_.memory[view_.x_args[i]] = slice(view_.xs[i], view_.x_args[i]);
    for (size_t i = 0; i < current.size(); ++i) frame_.memory[view_.carry_args[i]] = current[i];
    for (const auto& [value, buffer] : scan_.scratch) add_target(value, alternate(value, buffer));
    for (size_t i = 0; i < view_.stacks.size(); ++i)
      add_target(view_.y_outs[i], slice(view_.stacks[i], view_.y_outs[i]));
    std::vector<Value*> next;
    for (size_t i = 0; i < current.size(); ++i) {
      Value* work = alternate(view_.carry_outs[i], scan_.carries[i]);
      next.push_back(b_.CreateSelect(is_last_, frame_.address(view_.carry_results[i]), work));
      add_target(view_.carry_outs[i], next.back());
    }
    return next;
  }

  void emit_stages() {
    for (size_t i = 0; i < scan_.block.stages.size(); ++i) {
      if (barriers_[i]) emit_barrier();
      emit_stage(scan_.block.stages[i]);
    }
  }

  // ---- rows that end or enter

  /// Rows first..last-1 had their last step: their carries are results.
  void end_rows(const std::vector<Value*>& current, Value* first, Value* last) {
    copy_rows(first, last, [&](size_t i) { return std::pair(current[i], frame_.address(view_.carry_results[i])); });
  }

  /// Rows first..last-1 have their first step: they take their initial carries.
  void enter_rows(const std::vector<Value*>& current, Value* first, Value* last) {
    copy_rows(first, last, [&](size_t i) { return std::pair(frame_.address(view_.inits[i]), current[i]); });
  }

  /// The thread's share of these rows, of every carry, between the pair (from, to) that `places` gives. Of shared
  /// columns it is those that it wrote itself, or will read itself before the next barrier.
  void copy_rows(Value* first, Value* last, const std::function<std::pair<Value*, Value*>(size_t)>& places) {
    first = b_.CreateSelect(b_.CreateICmpSGT(first, frame_.lo), first, frame_.lo);
    last = frame_.minimum(last, frame_.hi);
    if_less(first, last, [&] {
      for (size_t i = 0; i < view_.carry_args.size(); ++i) copy_rows(first, last, i, places(i));
    });
  }

  void copy_rows(Value* first, Value* last, size_t carry, std::pair<Value*, Value*> place) {
    const ir::Type& type = frame_.type(view_.carry_args[carry]);
    const Stage* stage = producer(view_.carry_outs[carry]);
    Value* row = row_elements(type);
    bool shared = stage->lowering == Lowering::kFused && !stage->has_reduction && stage->domain.back().is_constant();
    if (!shared) return copy(place, b_.CreateMul(first, row), b_.CreateMul(b_.CreateSub(last, first), row), type.dtype);
    // Lines of the last dim, made of one or (products for several gates, concatenations) more parts.
    int64_t width = stage->domain.back().constant();
    int64_t parts = type.rank() == 1 || width == 0 ? 1 : type.shape.back().constant() / width;
    ir::Shape lines = type.shape;
    lines.erase(lines.begin());
    if (!lines.empty()) lines.pop_back();
    Value* lines_of_row = frame_.size(element_count(lines));
    UnitRange range = unit_range(frame_, *stage);
    Value* begin = b_.CreateMul(range.first, frame_.i64(stage->lanes));
    Value* count =
        b_.CreateSub(frame_.minimum(b_.CreateMul(range.last, frame_.i64(stage->lanes)), frame_.i64(width)), begin);
    frame_.loop(b_.CreateMul(first, lines_of_row), b_.CreateMul(last, lines_of_row), 1, [&](Value* line) {
      Value* start = b_.CreateAdd(b_.CreateMul(line, frame_.i64(parts * width)), begin);
      for (int64_t part = 0; part < parts; ++part)
        copy(place, b_.CreateAdd(start, frame_.i64(part * width)), count, type.dtype);
    });
  }

  void copy(std::pair<Value*, Value*> place, Value* start, Value* count, DType dtype) {
    auto [from, to] = place;
    b_.CreateMemCpy(frame_.offset(to, start, size_of(dtype)), llvm::MaybeAlign(1),
                    frame_.offset(from, start, size_of(dtype)), llvm::MaybeAlign(1),
                    b_.CreateMul(count, frame_.i64(size_of(dtype))));
  }

  const Stage* producer(ValueId value) const {
    for (const Stage& stage : scan_.block.stages)
      for (const Op* op : stage.ops)
        if (std::ranges::find(op->results, value) != op->results.end()) return &stage;
    internal_error("a carry of a ragged scan comes from no stage");
  }

  Value* row_elements(const ir::Type& type) {
    return frame_.size(element_count(ir::Shape(type.shape.begin() + 1, type.shape.end())));
  }

  void if_less(Value* x, Value* y, const std::function<void()>& body) {
    auto& context = b_.getContext();
    llvm::Function* function = b_.GetInsertBlock()->getParent();
    auto* inside = llvm::BasicBlock::Create(context, "some", function);
    auto* after = llvm::BasicBlock::Create(context, "none", function);
    b_.CreateCondBr(b_.CreateICmpSLT(x, y), inside, after);
    b_.SetInsertPoint(inside);
    body();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  /// Where a stack holds the step's slice.
  Value* slice(ValueId stack, ValueId of) {
    const ir::Type& type = frame_.type(of);
    Value* skipped = view_.ragged ? b_.CreateMul(offset_, row_elements(type))
                                  : b_.CreateMul(time_, frame_.size(element_count(type.shape)));
    return frame_.offset(frame_.address(stack), skipped, size_of(type.dtype));
  }

  Value* alternate(ValueId value, int64_t buffer) {
    return frame_.offset(frame_.buffer(buffer), b_.CreateMul(parity_, instance_bytes(frame_, frame_.type(value))), 1);
  }

  void add_target(ValueId value, Value* address) {
    auto& targets = frame_.targets[value];
    if (targets.empty()) frame_.memory[value] = address;
    targets.push_back(address);
  }

  void emit_barrier() {
    auto& context = b_.getContext();
    llvm::Function* function = b_.GetInsertBlock()->getParent();
    auto* wait = llvm::BasicBlock::Create(context, "wait", function);
    auto* after = llvm::BasicBlock::Create(context, "after", function);
    b_.CreateCondBr(b_.CreateICmpSGT(frame_.units, frame_.i64(1)), wait, after);
    b_.SetInsertPoint(wait);
    b_.CreateCall(
        frame_.runtime_function("weft_barrier", llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy()}, false)),
        {frame_.barrier});
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  void emit_stage(const Stage& stage) {
    ir::Shape rows = stage.lowering == Lowering::kRowCopy ? frame_.type(stage.ops[0]->results[0]).shape : stage.domain;
    rows.pop_back();
    Value *first = frame_.i64(0), *last = nullptr;
    if (scan_.block.batched) {
      rows.erase(rows.begin());
      Value* inner = frame_.size(element_count(rows));
      first = b_.CreateMul(frame_.lo, inner);
      last = b_.CreateMul(view_.ragged ? last_row_ : frame_.hi, inner);
    } else {
      last = frame_.size(element_count(rows));
    }
    if (stage.lowering == Lowering::kRowCopy)
      emit_row_copy(frame_, stage, first, last);
    else
      emit_rows(frame_, stage, first, last, false);
  }

  Frame& frame_;
  llvm::IRBuilder<>& b_;
  ir::ScanView view_;
  const ScanBuffers& scan_;
  std::vector<bool> barriers_;
  Value *time_ = nullptr, *parity_ = nullptr, *is_last_ = nullptr;  // of the step at hand
  Value *offset_ = nullptr, *last_row_ = nullptr;  // of a ragged scan: its first packed row, and its rows of ours
};

/// What a stage reads elsewhere than at its own columns: the stage that made it, in this step or in the one before.
struct CrossRead {
  size_t producer;
  bool previous_step;
};

class BarrierAnalysis {
 public:
  BarrierAnalysis(const Frame& frame, const ir::ScanView& view, const BlockSchedule& block)
      : frame_(frame), view_(view), block_(block) {
    for (size_t i = 0; i < block.stages.size(); ++i)
      for (const Op* op : block.stages[i].ops)
        for (ValueId result : op->results) producer_[result] = i;
  }

  std::vector<bool> run() const {
    std::vector<bool> barriers(block_.stages.size(), false);
    bool any = false;
    for (size_t i = 0; i < block_.stages.size(); ++i) {
      for (const CrossRead& read : cross_reads(i)) {
        size_t from = read.previous_step ? 0 : read.producer + 1;
        if (std::find(barriers.begin() + static_cast<long>(from), barriers.begin() + static_cast<long>(i) + 1, true) ==
            barriers.begin() + static_cast<long>(i) + 1)
          barriers[i] = true;
      }
      any = any || barriers[i];
    }
    // A carry written before the step's first barrier could overwrite what a slower thread still reads in the step
    // before.
    if (any && writes_carry_before(barriers)) barriers[0] = true;
    return barriers;
  }

 private:
  /// Stages that every thread runs whole leave nothing of another thread's to wait for.
  bool is_shared(size_t stage) const {
    return block_.stages[stage].lowering == Lowering::kFused && !block_.stages[stage].has_reduction;
  }

  ValueId memory_of(ValueId value) const {
    for (;;) {
      value = viewed(frame_.schedule, value);
      auto def = frame_.schedule.definition.find(value);
      if (def == frame_.schedule.definition.end() || def->second->code != OpCode::kReshape) return value;
      value = def->second->operands[0];
    }
  }

  bool reads_own_columns(const Stage& stage, const Op& op, ValueId operand, size_t producer) const {
    if (!is_shared(producer) || stage.lowering != Lowering::kFused || stage.has_reduction) return false;
    if (op.code == OpCode::kMatmulPacked || block_.stages[producer].domain != stage.domain) return false;
    View view = resolve(frame_, operand, stage.domain);
    return view.plain && view.slices == 0 && memory_of(operand) == view.root;
  }

  std::vector<CrossRead> cross_reads(size_t index) const {
    std::vector<CrossRead> reads;
    for (const Op* op : block_.stages[index].ops)
      for (ValueId operand : op->operands) {
        ValueId root = memory_of(operand);
        bool previous = false;
        auto carry = std::find(view_.carry_args.begin(), view_.carry_args.end(), root);
        if (carry != view_.carry_args.end()) {
          root = memory_of(view_.carry_outs[static_cast<size_t>(carry - view_.carry_args.begin())]);
          previous = true;
        }
        auto producer = producer_.find(root);
        if (producer == producer_.end() || (!previous && producer->second == index)) continue;
        if (!is_shared(producer->second) || reads_own_columns(block_.stages[index], *op, operand, producer->second))
          continue;
        reads.push_back({producer->second, previous});
      }
    return reads;
  }

  bool writes_carry_before(const std::vector<bool>& barriers) const {
    auto first = static_cast<size_t>(std::find(barriers.begin(), barriers.end(), true) - barriers.begin());
    return std::any_of(view_.carry_outs.begin(), view_.carry_outs.end(), [&](ValueId out) {
      auto producer = producer_.find(memory_of(out));
      return producer != producer_.end() && producer->second < first;
    });
  }

  const Frame& frame_;
  const ir::ScanView& view_;
  const BlockSchedule& block_;
  std::map<ValueId, size_t> producer_;
};

}  // namespace

std::vector<bool> barriers_before(const Frame& frame, const ir::ScanView& view, const BlockSchedule& block) {
  return BarrierAnalysis(frame, view, block).run();
}

void emit_scan(Frame& frame, const Op& op) { ScanLoop(frame, op).emit(); }

}  // namespace weft::codegen
