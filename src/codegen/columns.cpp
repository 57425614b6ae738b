#include "codegen/columns.h"

#include "base/target.h"
#include "codegen/pointwise.h"

namespace weft::codegen {

using llvm::Value;

llvm::Type* vector_of(llvm::Type* element, int64_t lanes) {
  return llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

void Columns::at(Value* column) {
  column_ = column;
  mask_ = nullptr;
  if (width_.is_constant() && width_.constant() % lanes_ == 0) return;
  auto& b = frame_.b;
  Value* left = frame_.minimum(b.CreateSub(frame_.size(width_), column), frame_.i64(lanes_));
  std::vector<uint32_t> lanes;
  for (int64_t i = 0; i < lanes_; ++i) lanes.push_back(static_cast<uint32_t>(i));
  Value* splat = b.CreateVectorSplat(static_cast<unsigned>(lanes_), b.CreateTrunc(left, b.getInt32Ty()));
  mask_ = b.CreateICmpSLT(llvm::ConstantDataVector::get(b.getContext(), lanes), splat);
}

Value* Columns::address(Value* row, DType dtype) { return frame_.offset(row, column_, size_of(dtype)); }

void Columns::prefetch(Value* address, Value* bytes, bool to_write) {
  auto& b = frame_.b;
  b.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {b.getPtrTy()},
      {b.CreateGEP(b.getInt8Ty(), address, bytes), b.getInt32(to_write ? 1 : 0), b.getInt32(2), b.getInt32(1)});
}

Value* Columns::load(Value* row, DType dtype) {
  auto& b = frame_.b;
  llvm::Type* type = vector_of(memory_type(b, dtype), lanes_);
  Value* address = this->address(row, dtype);
  llvm::Align align(static_cast<uint64_t>(size_of(dtype)));
  Value* loaded =
      mask_ ? static_cast<Value*>(b.CreateMaskedLoad(type, address, align, mask_, llvm::Constant::getNullValue(type)))
            : b.CreateAlignedLoad(type, address, align);
  return emit_from_memory(b, loaded, dtype);
}

void Columns::store(Value* row, Value* value, DType dtype) {
  auto& b = frame_.b;
  value = emit_to_memory(b, value, dtype);
  Value* address = this->address(row, dtype);
  llvm::Align align(static_cast<uint64_t>(size_of(dtype)));
  if (mask_)
    b.CreateMaskedStore(value, address, align, mask_);
  else
    b.CreateAlignedStore(value, address, align);
}

void Columns::stream(Value* row, Value* value, DType dtype) {
  auto& b = frame_.b;
  internal_check(!mask_, "a vector with a mask is no whole cache line");
  auto* store = b.CreateAlignedStore(emit_to_memory(b, value, dtype), address(row, dtype),
                                     llvm::Align(static_cast<uint64_t>(target::kCacheLine)));
  llvm::Metadata* one = llvm::ConstantAsMetadata::get(b.getInt32(1));
  store->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(b.getContext(), one));
}

Value* end_of_rows(Frame& frame, const ir::Dim& columns, Value* first, Value* last) {
  if (columns == ir::Dim(0)) return first;
  if (columns.is_constant()) return last;
  return frame.b.CreateSelect(frame.b.CreateICmpEQ(frame.size(columns), frame.i64(0)), first, last);
}

}  // namespace weft::codegen
