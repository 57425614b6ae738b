#include "codegen/scan.h"

#include <algorithm>

#include "base/settings.h"
#include "base/target.h"
#include "codegen/elements.h"
#include "codegen/pointwise.h"
#include "codegen/row_copy.h"
#include "codegen/rows.h"
#include "planning/loops/elementwise_scan.h"

namespace weft::codegen {
namespace {

using ir::Op;
using ir::OpCode;
using ir::ValueId;
using llvm::Value;
using planning::Lowering;

/// Bytes of one instance of a value's buffer (runtime::instance_bytes).
Value* instance_bytes(Frame& frame, const ir::Type& type) {
  Value* bytes = frame.b.CreateMul(frame.size(element_count(type.shape)), frame.i64(size_of(type.dtype)));
  Value* padded = frame.b.CreateAdd(bytes, frame.i64(target::kCacheLine - 1));
  return frame.b.CreateAnd(padded, frame.i64(-target::kCacheLine));
}

class ScanLoop {
 public:
  ScanLoop(Frame& frame, const Op& op)
      : frame_(frame), b_(frame.b), op_(op), view_(op), scan_(frame.schedule.scans.at(&op)) {
    frame_.batched = frame_.schedule.rules.decision(op).batched;
    for (const planning::Stage& stage : scan_.block.stages)
      for (const Op* made : stage.ops)
        for (ValueId result : made->results) producer_[result] = &stage;
    is_first_unit_ = b_.CreateICmpEQ(frame_.unit, frame_.i64(0));
  }

  void emit() {
    Value* length = frame_.size(view_.length);
    std::vector<Value*> carries;
    for (ValueId init : view_.inits) carries.push_back(frame_.address(init));
    decide_streams();
    if (view_.ragged) {
      emit_ragged(length, std::move(carries));
    } else {
      continue_from(frame_.first_step, carries);
      if (planning::is_elementwise_scan(frame_.schedule, op_))
        frame_.branch(
            fits_registers(), [&] { emit_in_registers(length, carries); }, [&] { emit_steps(length, carries); });
      else
        emit_steps(length, carries);
    }
    finish_streams();
  }

 private:
  // ---- stacks past the caches

  /// Sets whether this thread's rows of the stacks go past the caches.
  void decide_streams() {
    Value *addresses = frame_.i64(0), *bytes = frame_.i64(0);
    int64_t count = 0;
    for (size_t i = 0; i < view_.stacks.size(); ++i) {
      if (!scan_.streamed.contains(view_.y_outs[i])) continue;
      const ir::Type& type = frame_.type(view_.stacks[i]);
      addresses = b_.CreateOr(addresses, b_.CreatePtrToInt(frame_.address(view_.stacks[i]), b_.getInt64Ty()));
      Value* elements = frame_.size(element_count(type.shape));
      bytes = b_.CreateAdd(bytes, b_.CreateMul(elements, frame_.i64(size_of(type.dtype))));
      ++count;
    }
    if (count == 0) return;
    llvm::Type* integer = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(integer, {integer, integer, integer, integer}, false);
    frame_.streams = b_.CreateCall(frame_.runtime_function("weft_streams", type),
                                   {bytes, part_of(bytes), frame_.i64(count), addresses});
  }

  /// This thread's share of a total over all rows.
  Value* part_of(Value* all) {
    Value* part = b_.CreateUDiv(all, frame_.units);
    if (!frame_.batched || view_.carry_args.empty()) return part;
    Value* rows = b_.CreateMul(part, b_.CreateSub(frame_.hi, frame_.lo));
    Value* batch = frame_.size(frame_.type(view_.carry_args[0]).shape[0]);
    return b_.CreateUDiv(rows, b_.CreateSelect(b_.CreateICmpEQ(batch, frame_.i64(0)), frame_.i64(1), batch));
  }

  /// Orders the stores past the caches before whatever follows: the stages behind read the stacks.
  void finish_streams() {
    if (!scan_.streamed.empty()) b_.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent);
  }

  void emit_steps(Value* length, const std::vector<Value*>& carries) {
    frame_.loop(frame_.first_step, frame_.last_step, 1, carries, [&](Value* step, const std::vector<Value*>& current) {
      begin_step(step, length);
      std::vector<Value*> next = set_addresses(current);
      emit_stages();
      return next;
    });
  }

  // ---- steps without memory between them

  /// Whether the carries of this thread are so few vectors that keeping them in registers pays. With few vectors, each
  /// step waits for the stores of the step before. With more, the processor overlaps the work of several vectors, which
  /// a loop over one vector's steps would prevent. The more a step computes, the fewer vectors are enough for that.
  Value* fits_registers() {
    const planning::Stage& stage = scan_.block.stages[0];
    const int64_t most = planning::is_dear(stage) ? 1 : 2;
    auto [first, last] = rows_of(stage);
    UnitRange range = unit_range(frame_, stage);
    Value* vectors = b_.CreateMul(b_.CreateSub(last, first), b_.CreateSub(range.last, range.first));
    Value* few = b_.CreateICmpSLE(vectors, frame_.i64(most));
    return b_.CreateAnd(few, b_.CreateICmpSLT(frame_.first_step, frame_.last_step));
  }

  /// For each vector of carries runs all steps before the next vector, as is_elementwise_scan allows.
  void emit_in_registers(Value* length, const std::vector<Value*>& carries) {
    const planning::Stage& stage = scan_.block.stages[0];
    auto [first, last] = rows_of(stage);
    UnitRange columns = column_range(frame_, stage);
    last = end_of_rows(frame_, stage.domain.back(), first, last);
    frame_.loop(first, last, 1, [&](Value* row) {
      frame_.loop(columns.first, columns.last, stage.lanes,
                  [&](Value* column) { emit_vector(length, carries, row, column); });
    });
  }

  void emit_vector(Value* length, const std::vector<Value*>& carries, Value* row, Value* column) {
    const planning::Stage& stage = scan_.block.stages[0];
    StageElements elements(frame_, stage);
    elements.at_column(column);
    Columns& columns = elements.columns();
    Value* skipped = b_.CreateMul(row, frame_.size(stage.domain.back()));
    auto at_row = [&](size_t i, Value* memory) {
      return frame_.offset(memory, skipped, size_of(frame_.type(view_.carry_args[i]).dtype));
    };
    std::vector<Value*> now;
    for (size_t i = 0; i < carries.size(); ++i)
      now.push_back(columns.load(at_row(i, carries[i]), frame_.type(view_.carry_args[i]).dtype));
    auto is_x = [&](ValueId root) {
      return std::ranges::count(view_.x_args, planning::memory_of(frame_.schedule, root)) > 0;
    };
    auto is_carry = [&](ValueId root) { return std::ranges::count(view_.carry_args, root) > 0; };
    frame_.targets.clear();
    elements.at_row(row, [&](ValueId root) { return !is_x(root) && !is_carry(root); });
    now = frame_.loop(frame_.first_step, frame_.last_step, 1, now, [&](Value* step, const std::vector<Value*>& held) {
      begin_step(step, length);
      set_inputs();
      frame_.next_slice.clear();
      for (size_t i = 0; i < view_.stacks.size(); ++i)
        add_target(view_.y_outs[i], slice(view_.stacks[i], view_.y_outs[i]));
      elements.at_row(row, is_x);
      std::map<ValueId, Value*> holding;
      for (size_t i = 0; i < held.size(); ++i) holding[view_.carry_args[i]] = held[i];
      elements.start_with(std::move(holding));
      for (const Op* op : stage.ops) elements.emit(*op);
      std::vector<Value*> next;
      for (ValueId out : view_.carry_outs) {
        const DType dtype = frame_.type(out).dtype;  // rounded as memory would
        next.push_back(emit_from_memory(b_, emit_to_memory(b_, elements.read(out), dtype), dtype));
      }
      return next;
    });
    begin_step(b_.CreateSub(frame_.last_step, frame_.i64(1)), length);
    for (size_t i = 0; i < carries.size(); ++i) {
      const ValueId out = view_.carry_outs[i];
      Value* end = b_.CreateSelect(is_last_, frame_.address(view_.carry_results[i]), alternate(out, scan_.carries[i]));
      columns.store(at_row(i, end), now[i], frame_.type(out).dtype);
    }
  }

  /// After an earlier call that ended before step `first`, takes the carries from where that call left them.
  void continue_from(Value* first, std::vector<Value*>& carries) {
    parity_ = b_.CreateAnd(b_.CreateSub(first, frame_.i64(1)), frame_.i64(1));
    Value* starts = b_.CreateICmpEQ(first, frame_.i64(0));
    for (size_t i = 0; i < carries.size(); ++i)
      carries[i] = b_.CreateSelect(starts, carries[i], alternate(view_.carry_outs[i], scan_.carries[i]));
  }

  /// The loop of a ragged scan also carries the first packed row of the step, and the number of rows of the step
  /// before. Between two steps, rows that end store their carries, and rows that enter load them.
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
    // Every other step takes the panels backwards. If the weights are larger than the cache, a step then begins with
    // the weights that the step before left there.
    frame_.backwards = b_.CreateICmpNE(parity_, frame_.i64(0));
  }

  /// Sets the addresses of the slices that the step reads, and clears the addresses at which it stores.
  void set_inputs() {
    frame_.targets.clear();
    frame_.next_slice.clear();
    frame_.streamed.clear();
    for (size_t i = 0; i < view_.x_args.size(); ++i) {
      Value* place = slice(view_.xs[i], view_.x_args[i]);
      frame_.memory[view_.x_args[i]] = place;
      expect_next(place, view_.x_args[i]);
    }
  }

  /// Sets the addresses at which the step reads and stores. Returns the addresses of the carries in the next step.
  std::vector<Value*> set_addresses(const std::vector<Value*>& current) {
    set_inputs();
    for (size_t i = 0; i < current.size(); ++i) frame_.memory[view_.carry_args[i]] = current[i];
    for (const auto& [value, buffer] : scan_.scratch) add_target(value, alternate(value, buffer));
    std::vector<Value*> next;
    std::map<ValueId, Value*> others = other_units_places();
    for (size_t i = 0; i < current.size(); ++i) {
      ValueId out = view_.carry_outs[i];
      Value* work = alternate(out, scan_.carries[i]);
      Value* writes_result = is_replicated(out) ? b_.CreateAnd(is_last_, is_first_unit_) : is_last_;
      next.push_back(b_.CreateSelect(writes_result, frame_.address(view_.carry_results[i]), work));
      if (is_replicated(out)) others[out] = work;
    }
    for (size_t i = 0; i < view_.stacks.size(); ++i) {
      ValueId out = view_.y_outs[i];
      Value* place = slice(view_.stacks[i], out);
      expect_next(place, out);
      if (is_replicated(out)) place = b_.CreateSelect(is_first_unit_, place, others.at(out));
      if (scan_.streamed.contains(out)) frame_.streamed.insert(place);
      add_target(out, place);
    }
    for (size_t i = 0; i < current.size(); ++i) add_target(view_.carry_outs[i], next[i]);
    return next;
  }

  /// The addresses to which units other than the first store replicated ys (ColumnSharing).
  std::map<ValueId, Value*> other_units_places() {
    std::map<ValueId, Value*> places;
    for (auto [value, buffer] : scan_.others) {
      Value* before = b_.CreateMul(b_.CreateSub(frame_.unit, frame_.i64(1)), frame_.i64(2));
      places[value] = instance(value, buffer, b_.CreateAdd(before, parity_));
    }
    return places;
  }

  bool is_replicated(ValueId value) const { return !planning::splits_columns(*producer(value)); }

  void emit_stages() {
    const std::vector<planning::Stage>& stages = scan_.block.stages;
    for (size_t first = 0, last = 0; first < stages.size(); first = last) {
      last = first + 1;
      while (last < stages.size() && runs_in_blocks(stages[first]) && runs_in_blocks(stages[last])) ++last;
      if (last - first == 1)
        emit_stages(first, last);
      else
        emit_in_blocks(first, last);
    }
  }

  void emit_stages(size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) {
      if (settings().delays) emit_delay();
      if (scan_.barrier_before[i]) emit_barrier();
      auto emit = [&] { emit_stage(scan_.block.stages[i]); };
      if (scan_.for_next_step[i])
        frame_.branch(is_last_, [] {}, emit);
      else
        emit();
    }
  }

  /// Whether the stage runs for a few rows at a time. A stage with a product does not: it reads its weights once for
  /// all rows.
  bool runs_in_blocks(const planning::Stage& stage) const { return frame_.batched && stage.unroll == 0; }

  /// Runs stages for a few rows at a time, so that a stage reads what the stage before stored from the first-level
  /// cache. Members that share columns wait for each other between the stages, so they take all rows at once.
  void emit_in_blocks(size_t first, size_t last) {
    constexpr int64_t kRows = 4;
    Value *all_first = frame_.lo, *all_last = frame_.hi, *ragged_last = last_row_;
    Value* end = view_.ragged ? last_row_ : frame_.hi;
    Value* rows = b_.CreateSub(end, all_first);
    Value* block = b_.CreateSelect(b_.CreateICmpSGT(frame_.units, frame_.i64(1)), rows, frame_.i64(kRows));
    Value* blocks = b_.CreateSelect(b_.CreateICmpSGT(frame_.units, frame_.i64(1)), frame_.i64(1),
                                    b_.CreateSDiv(b_.CreateAdd(rows, frame_.i64(kRows - 1)), frame_.i64(kRows)));
    frame_.loop(frame_.i64(0), blocks, 1, [&](Value* i) {
      frame_.lo = b_.CreateAdd(all_first, b_.CreateMul(i, block));
      frame_.hi = last_row_ = frame_.minimum(b_.CreateAdd(frame_.lo, block), end);
      emit_stages(first, last);
    });
    frame_.lo = all_first;
    frame_.hi = all_last;
    last_row_ = ragged_last;
  }

  // ---- rows that end or enter

  /// Rows first..last-1 had their last step: copies their carries to the results. Unit 0 copies replicated carries.
  void end_rows(const std::vector<Value*>& current, Value* first, Value* last) {
    copy_rows(first, last, [&](size_t i, Value* from, Value* to) {
      Value* end = is_replicated(view_.carry_outs[i]) ? b_.CreateSelect(is_first_unit_, to, from) : to;
      copy_rows(from, end, i, {current[i], frame_.address(view_.carry_results[i])});
    });
  }

  /// Rows first..last-1 have their first step: copies their initial carries.
  void enter_rows(const std::vector<Value*>& current, Value* first, Value* last) {
    copy_rows(first, last, [&](size_t i, Value* from, Value* to) {
      copy_rows(from, to, i, {frame_.address(view_.inits[i]), current[i]});
    });
  }

  /// Calls copy_carry(carry, first, last) with the thread's share of these rows, for every carry.
  void copy_rows(Value* first, Value* last, const std::function<void(size_t, Value*, Value*)>& copy_carry) {
    first = b_.CreateSelect(b_.CreateICmpSGT(first, frame_.lo), first, frame_.lo);
    last = frame_.minimum(last, frame_.hi);
    if_less(first, last, [&] {
      for (size_t i = 0; i < view_.carry_args.size(); ++i) copy_carry(i, first, last);
    });
  }

  /// Copies rows of a carry; if columns are shared, the unit's own columns of them.
  void copy_rows(Value* first, Value* last, size_t carry, std::pair<Value*, Value*> place) {
    const ir::Type& type = frame_.type(view_.carry_args[carry]);
    const planning::Stage* stage = producer(view_.carry_outs[carry]);
    Value* row = row_elements(type);
    if (!planning::splits_columns(*stage))
      return copy(place, b_.CreateMul(first, row), b_.CreateMul(b_.CreateSub(last, first), row), type.dtype);
    // A line is a run along the last dim. It has several parts if it holds several gates or is a concatenation.
    int64_t width = stage->domain.back().constant();
    int64_t parts = type.rank() == 1 || width == 0 ? 1 : type.shape.back().constant() / width;
    ir::Shape lines = type.shape;
    lines.erase(lines.begin());
    if (!lines.empty()) lines.pop_back();
    Value* lines_of_row = frame_.size(element_count(lines));
    UnitRange columns = column_range(frame_, *stage);
    Value* count = b_.CreateSub(columns.last, columns.first);
    frame_.loop(b_.CreateMul(first, lines_of_row), b_.CreateMul(last, lines_of_row), 1, [&](Value* line) {
      Value* start = b_.CreateAdd(b_.CreateMul(line, frame_.i64(parts * width)), columns.first);
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

  const planning::Stage* producer(ValueId value) const {
    auto found = producer_.find(value);
    internal_check(found != producer_.end(), "%{}, a result of a scan's region, comes from no stage", value);
    return found->second;
  }

  Value* row_elements(const ir::Type& type) {
    return frame_.size(element_count(ir::Shape(type.shape.begin() + 1, type.shape.end())));
  }

  void if_less(Value* x, Value* y, const std::function<void()>& body) {
    frame_.branch(b_.CreateICmpSLT(x, y), body, [] {});
  }

  /// Makes the step prefetch the next step's slice of a stack if there are more stacks than the processor's own
  /// prefetcher follows. (Zen 5, stacks larger than the caches: with 9 stacks a loop takes three quarters of the time,
  /// with 7 as long as before; with few rows, whose next slice lies beside this one, 3 % longer.)
  void expect_next(Value* place, ValueId of) {
    constexpr int64_t kFollowed = 8;
    if (view_.ragged || std::ssize(view_.xs) + std::ssize(view_.stacks) <= kFollowed) return;
    const ir::Type& type = frame_.type(of);
    Value* bytes = b_.CreateMul(frame_.size(element_count(type.shape)), frame_.i64(size_of(type.dtype)));
    frame_.next_slice[place] = view_.reverse ? b_.CreateNeg(bytes) : bytes;
  }

  /// The address of the step's slice of a stack.
  Value* slice(ValueId stack, ValueId of) {
    const ir::Type& type = frame_.type(of);
    Value* skipped = view_.ragged ? b_.CreateMul(offset_, row_elements(type))
                                  : b_.CreateMul(time_, frame_.size(element_count(type.shape)));
    return frame_.offset(frame_.address(stack), skipped, size_of(type.dtype));
  }

  /// The address of a value's instance for this step. A replicated value has such instances for each unit: then the
  /// address of this unit's instance.
  Value* alternate(ValueId value, int64_t buffer) {
    if (!is_replicated(value)) return instance(value, buffer, parity_);
    return instance(value, buffer, b_.CreateAdd(b_.CreateMul(frame_.unit, frame_.i64(2)), parity_));
  }

  Value* instance(ValueId value, int64_t buffer, Value* index) {
    return frame_.offset(frame_.buffer(buffer), b_.CreateMul(index, instance_bytes(frame_, frame_.type(value))), 1);
  }

  void add_target(ValueId value, Value* address) {
    auto& targets = frame_.targets[value];
    if (targets.empty()) frame_.memory[value] = address;
    targets.push_back(address);
  }

  void emit_delay() {
    b_.CreateCall(frame_.runtime_function("weft_delay", llvm::FunctionType::get(b_.getVoidTy(), false)));
  }

  void emit_barrier() {
    if_less(frame_.i64(1), frame_.units, [&] {
      auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy()}, false);
      b_.CreateCall(frame_.runtime_function("weft_barrier", type), {frame_.barrier});
    });
  }

  /// This thread's rows of the stage's domain.
  std::pair<Value*, Value*> rows_of(const planning::Stage& stage) {
    ir::Shape rows = stage.lowering == Lowering::kRowCopy ? frame_.type(stage.ops[0]->results[0]).shape : stage.domain;
    rows.pop_back();
    if (!frame_.batched) return {frame_.i64(0), frame_.size(element_count(rows))};
    rows.erase(rows.begin());
    Value* inner = frame_.size(element_count(rows));
    return {b_.CreateMul(frame_.lo, inner), b_.CreateMul(view_.ragged ? last_row_ : frame_.hi, inner)};
  }

  void emit_stage(const planning::Stage& stage) {
    auto [first, last] = rows_of(stage);
    if (stage.lowering == Lowering::kRowCopy)
      emit_row_copy(frame_, stage, first, last);
    else
      emit_rows(frame_, stage, first, last, false);
  }

  Frame& frame_;
  llvm::IRBuilder<>& b_;
  const Op& op_;
  ir::ScanView view_;
  const planning::ScanBuffers& scan_;
  std::map<ValueId, const planning::Stage*> producer_;
  Value* is_first_unit_ = nullptr;
  Value *time_ = nullptr, *parity_ = nullptr, *is_last_ = nullptr;  // of the step at hand
  Value *offset_ = nullptr, *last_row_ = nullptr;  // of a ragged step: its first packed row, and the end of this
                                                   // thread's rows
};

}  // namespace

void emit_scan(Frame& frame, const Op& op) { ScanLoop(frame, op).emit(); }

}  // namespace weft::codegen
