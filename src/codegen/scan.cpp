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
    frame_.loop(frame_.i64(0), length, 1, carries,
                [&](Value* step, const std::vector<Value*>& current) { return emit_step(step, length, current); });
  }

 private:
  std::vector<Value*> emit_step(Value* step, Value* length, const std::vector<Value*>& current) {
    Value* last = b_.CreateSub(length, frame_.i64(1));
    Value* time = view_.reverse ? b_.CreateSub(last, step) : step;
    Value* parity = b_.CreateAnd(step, frame_.i64(1));
    Value* is_last = b_.CreateICmpEQ(step, last);
    // Every other step backwards: what the step before left in the cache, of weights larger than it, is read again.
    frame_.backwards = b_.CreateICmpNE(parity, frame_.i64(0));
    frame_.targets.clear();
    for (size_t i = 0; i < view_.x_args.size(); ++i)
      frame_.memory[view_.x_args[i]] = slice(view_.xs[i], view_.x_args[i], time);
    for (size_t i = 0; i < current.size(); ++i) frame_.memory[view_.carry_args[i]] = current[i];
    for (const auto& [value, buffer] : scan_.scratch) add_target(value, alternate(value, buffer, parity));
    for (size_t i = 0; i < view_.stacks.size(); ++i)
      add_target(view_.y_outs[i], slice(view_.stacks[i], view_.y_outs[i], time));
    std::vector<Value*> next;
    for (size_t i = 0; i < current.size(); ++i) {
      Value* work = alternate(view_.carry_outs[i], scan_.carries[i], parity);
      next.push_back(b_.CreateSelect(is_last, frame_.address(view_.carry_results[i]), work));
      add_target(view_.carry_outs[i], next.back());
    }
    for (size_t i = 0; i < scan_.block.stages.size(); ++i) {
      if (barriers_[i]) emit_barrier();
      emit_stage(scan_.block.stages[i]);
    }
    return next;
  }

  /// Where a stack holds the step's slice.
  Value* slice(ValueId stack, ValueId of, Value* time) {
    const ir::Type& type = frame_.type(of);
    return frame_.offset(frame_.address(stack), b_.CreateMul(time, frame_.size(element_count(type.shape))),
                         size_of(type.dtype));
  }

  Value* alternate(ValueId value, int64_t buffer, Value* parity) {
    return frame_.offset(frame_.buffer(buffer), b_.CreateMul(parity, instance_bytes(frame_, frame_.type(value))), 1);
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
      last = b_.CreateMul(frame_.hi, inner);
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
