#include "codegen/row_copy.h"

#include "base/target.h"
#include "codegen/access.h"
#include "codegen/columns.h"
#include "codegen/pointwise.h"

namespace weft::codegen {
namespace {

using ir::Op;
using ir::ValueId;
using llvm::Value;

/// Emits rows of a concatenation along the last dim, or of a padding of it.
class RowCopy {
 public:
  RowCopy(Frame& frame, const Op& op) : frame_(frame), op_(op), whole_(frame.type(op.results[0])) {}

  void emit(Value* row) {
    row_ = row;
    start_ = frame_.i64(0);
    if (!ir::is_join(op_.code)) append_zeros(size_attr(op_, "low"));
    for (ValueId part : op_.operands) append(part);
    if (!ir::is_join(op_.code)) append_zeros(size_attr(op_, "high"));
  }

 private:
  static constexpr int64_t kLanes = target::lanes(DType::kF32);

  void append(ValueId part) {
    const ir::Shape& shape = frame_.type(part).shape;
    planning::View view = planning::resolve(frame_.schedule, part, shape);
    RowIndex index(frame_, shape, row_);
    Value* from = frame_.offset(frame_.address(view.root), index.elements(view), size_of(whole_.dtype));
    append_columns(shape.back(), [&](Columns& columns) { return columns.load(from, whole_.dtype); });
  }

  void append_zeros(const ir::Dim& width) {
    if (width == ir::Dim(0)) return;
    llvm::Type* type = vector_of(register_type(frame_.b, whole_.dtype), kLanes);
    append_columns(width, [&](Columns&) { return llvm::Constant::getNullValue(type); });
  }

  void append_columns(const ir::Dim& width, const std::function<Value*(Columns&)>& value_at) {
    Columns columns(frame_, width, kLanes);
    frame_.loop(frame_.i64(0), frame_.size(width), kLanes, [&](Value* column) {
      columns.at(column);
      Value* value = value_at(columns);
      for (Value* target : frame_.targets.at(op_.results[0])) {
        Value* place = frame_.b.CreateAdd(frame_.b.CreateMul(row_, frame_.size(whole_.shape.back())), start_);
        columns.store(frame_.offset(target, place, size_of(whole_.dtype)), value, whole_.dtype);
      }
    });
    start_ = frame_.b.CreateAdd(start_, frame_.size(width));
  }

  Frame& frame_;
  const Op& op_;
  const ir::Type& whole_;
  Value* row_ = nullptr;
  Value* start_ = nullptr;  // the next free column
};

}  // namespace

void emit_row_copy(Frame& frame, const planning::Stage& stage, Value* first, Value* last) {
  RowCopy copy(frame, *stage.ops[0]);
  last = end_of_rows(frame, frame.type(stage.ops[0]->results[0]).shape.back(), first, last);
  frame.loop(first, last, 1, [&](Value* row) { copy.emit(row); });
}

}  // namespace weft::codegen
