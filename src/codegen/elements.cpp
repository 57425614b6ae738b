#include "codegen/elements.h"

#include "base/target.h"
#include "codegen/pointwise.h"

namespace weft::codegen {

using ir::Op;
using ir::ValueId;
using llvm::Value;

StageElements::StageElements(Frame& frame, const planning::Stage& stage, Tile tile)
    : frame_(frame),
      stage_(stage),
      b_(frame.b),
      tile_(std::move(tile)),
      columns_(frame, stage.domain.back(), stage.lanes) {
  for (const Op* op : stage.ops) in_stage_.insert(op->results.begin(), op->results.end());
}

void StageElements::at_row(Value* row, const std::function<bool(ValueId root)>& among) {
  at_row(RowIndex(frame_, stage_.domain, row), among);
}

void StageElements::at_row_of_group(Value* group, Value* within) {
  at_row(RowIndex(frame_, stage_.domain, group, within), nullptr);
}

void StageElements::at_row(RowIndex index, const std::function<bool(ValueId root)>& among) {
  row_ = index.row();
  const auto is_among = [&](const auto& entry) { return !among || among(std::get<ValueId>(entry.first)); };
  std::erase_if(pointers_, is_among);
  std::erase_if(scalars_, is_among);
  for (const Op* op : stage_.ops) {
    if (planning::is_stage_product(*op)) continue;
    for (ValueId operand : op->operands) prepare(operand, index, among);
  }
}

std::vector<planning::View> StageElements::astride_lines() const {
  std::vector<planning::View> views;
  std::set<ViewKey> seen;
  for (const Op* op : stage_.ops) {
    if (planning::is_stage_product(*op)) continue;
    for (ValueId operand : op->operands) {
      const planning::View view = planning::resolve(frame_.schedule, operand, stage_.domain);
      if (in_stage_.contains(view.root) || is_constant(view.root) || !planning::has_columns(view, stage_.rank))
        continue;
      const ir::Type& type = frame_.type(view.root);
      const bool has_rows = type.rank() > 1;
      const bool whole_lines = type.shape.back().is_constant() &&
                               type.shape.back().constant() * size_of(type.dtype) % target::kCacheLine == 0;
      if (has_rows && !whole_lines && seen.insert({view.root, view.from, view.start}).second) views.push_back(view);
    }
  }
  return views;
}

void StageElements::expect(const std::vector<planning::View>& views, Value* row, Value* column) {
  RowIndex index(frame_, stage_.domain, row);
  for (const planning::View& view : views) {
    const int64_t size = size_of(frame_.type(view.root).dtype);
    Value* place = frame_.offset(frame_.address(view.root), index.elements(view), size);
    Value* first = frame_.offset(place, column, size);
    columns_.prefetch(first, frame_.i64(0), false);
    columns_.prefetch(first, frame_.i64(stage_.lanes * size - 1), false);
  }
}

void StageElements::prepare(ValueId operand, RowIndex& index, const std::function<bool(ValueId root)>& among) {
  planning::View view = planning::resolve(frame_.schedule, operand, stage_.domain);
  if (in_stage_.contains(view.root) || is_constant(view.root) || (among && !among(view.root))) return;
  ViewKey key{view.root, view.from, view.start};
  if (pointers_.contains(key)) return;
  DType dtype = frame_.type(view.root).dtype;
  Value* start = frame_.address(view.root);
  Value* pointer = frame_.offset(start, index.elements(view), size_of(dtype));
  pointers_[key] = pointer;
  if (auto next = frame_.next_slice.find(start); next != frame_.next_slice.end()) next_slice_[pointer] = next->second;
  if (planning::has_columns(view, stage_.rank)) return;
  Value* scalar =
      b_.CreateAlignedLoad(memory_type(b_, dtype), pointer, llvm::Align(static_cast<uint64_t>(size_of(dtype))));
  scalars_[key] = b_.CreateVectorSplat(static_cast<unsigned>(stage_.lanes), emit_from_memory(b_, scalar, dtype));
}

bool StageElements::is_constant(ValueId value) const {
  auto def = frame_.schedule.definition.find(value);
  return def != frame_.schedule.definition.end() && ir::is_constant(def->second->code);
}

void StageElements::at_column(Value* column) {
  columns_.at(column);
  start_with({});
}

void StageElements::start_with(std::map<ValueId, Value*> registers) {
  registers_ = std::move(registers);
  loaded_.clear();
}

Value* StageElements::read(ValueId operand) {
  planning::View view = planning::resolve(frame_.schedule, operand, stage_.domain);
  if (is_constant(view.root))
    return emit_constant(b_, *frame_.schedule.definition.at(view.root), frame_.type(view.root).dtype, stage_.lanes);
  if (auto found = registers_.find(view.root); found != registers_.end()) return found->second;
  if (in_stage_.contains(view.root)) return tile_(view);
  ViewKey key{view.root, view.from, view.start};
  if (auto scalar = scalars_.find(key); scalar != scalars_.end()) return scalar->second;
  if (auto loaded = loaded_.find(key); loaded != loaded_.end()) return loaded->second;
  Value* pointer = pointers_.at(key);
  const DType dtype = frame_.type(view.root).dtype;
  if (auto next = next_slice_.find(pointer); next != next_slice_.end())
    columns_.prefetch(columns_.address(pointer, dtype), next->second, false);
  return loaded_[key] = columns_.load(pointer, dtype);
}

void StageElements::emit(const Op& op) {
  if (ir::is_join(op.code)) return store_concat(op);
  std::vector<Value*> operands;
  for (ValueId operand : op.operands) operands.push_back(read(operand));
  ValueId result = op.results[0];
  DType to = frame_.type(result).dtype;
  auto emitted = [&] {
    const bool is_coarse = stage_.coarse.contains(result);
    return emit_elementwise(b_, op, frame_.type(op.operands.back()).dtype, to, operands, is_coarse);
  };
  const bool is_unrounded = stage_.unrounded.contains(result);
  Value* value = is_unrounded ? operands[0] : emitted();
  registers_[result] = value;
  if (!frame_.targets.contains(result)) return;
  store(result, is_unrounded ? emitted() : value, frame_.size(stage_.domain.back()), frame_.i64(0));
}

void StageElements::store(ValueId result, Value* value, Value* width, Value* skip) {
  auto targets = frame_.targets.find(result);
  if (targets == frame_.targets.end()) return;
  DType dtype = frame_.type(result).dtype;
  for (Value* target : targets->second) {
    Value* row = frame_.offset(target, b_.CreateAdd(b_.CreateMul(row_, width), skip), size_of(dtype));
    auto next = frame_.next_slice.find(target);
    const Store at{row, value, dtype, next == frame_.next_slice.end() ? nullptr : next->second};
    if (frame_.streamed.contains(target))
      streamed_.push_back(at);
    else
      store(at);
  }
}

void StageElements::store(const Store& at) {
  if (at.next_slice) columns_.prefetch(columns_.address(at.row, at.dtype), at.next_slice, true);
  columns_.store(at.row, at.value, at.dtype);
}

void StageElements::finish_column() {
  if (streamed_.empty()) return;
  auto past_the_caches = [&] {
    for (const Store& at : streamed_) columns_.stream(at.row, at.value, at.dtype);
  };
  auto through_the_caches = [&] {
    for (const Store& at : streamed_) store(at);
  };
  frame_.branch(b_.CreateICmpNE(frame_.streams, frame_.i64(0)), past_the_caches, through_the_caches);
  streamed_.clear();
}

void StageElements::store_concat(const Op& op) {
  int64_t width = stage_.domain.back().constant();
  auto count = static_cast<int64_t>(op.operands.size());
  for (int64_t i = 0; i < count; ++i)
    store(op.results[0], read(op.operands[static_cast<size_t>(i)]), frame_.i64(width * count), frame_.i64(width * i));
}

}  // namespace weft::codegen
