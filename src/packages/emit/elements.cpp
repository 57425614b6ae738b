// One vector of a value: read from memory, or computed from its op's operands.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "codegen/pointwise.h"
#include "packages/emit/emitter.h"
#include "packages/emit/math.h"

namespace weft::packages {

using ir::Op;
using ir::OpCode;
using ir::ValueId;
using llvm::Value;

Value* Emitter::get(ValueId value, const Place& place) {
  if (const auto moved = moved_leaves_.find(value); moved != moved_leaves_.end())
    return get_moved(moved->second, place);
  const auto key = std::tuple(value, place, now_);
  if (auto found = known_.find(key); found != known_.end()) return found->second;
  Value* result = nullptr;
  if (auto buffer = buffers_.find(value); buffer != buffers_.end() && !current_.contains(value))
    result = load(buffer->second, place, sizes(value));
  else if (step_.is_constant(value))
    result = get_constant(value, place);
  else
    result = compute(value, *step_.op_of(value), place);
  return known_[key] = result;
}

Value* Emitter::compute(ValueId value, const Op& op, const Place& place) {
  const bool product = is_product(step_, op);
  if (product && place.lane >= 0 && place.lane + 1 != static_cast<int64_t>(place.at.size()))
    return get_one_by_one(value, place);
  if (const auto& chain = chain_at(value, op); !chain.empty()) return fold_chain(op, chain, place);
  if (op.code == OpCode::kAdd || product) {
    Sum sum = sum_of(value, place);
    if (!sum.parts.empty()) {
      const bool in_order = place.lane >= 0 && sum.parts[0].column.base == block_column_;
      if (recording_ == nullptr || !in_order) return plain_sum(sum);
      for (const Leaf& leaf : sum.others) get(leaf.value, leaf.place);
      recording_->push_back(std::move(sum));
      return llvm::PoisonValue::get(register_type(dtype(value), place.lanes));
    }
  }
  Place moved = place;
  switch (op.code) {
    case OpCode::kBroadcast:
      return broadcast(op, place);
    case OpCode::kReshape: {
      const std::optional<Place> inner = reshaped(op, place);
      return inner ? get(op.operands[0], *inner) : get_one_by_one(value, place);
    }
    case OpCode::kSlice:
      moved.at[static_cast<size_t>(op.attr<int64_t>("dim"))].offset += op.attr<int64_t>("start");
      return get(op.operands[0], moved);
    case OpCode::kTranspose: {
      const auto& perm = op.attr<std::vector<int64_t>>("perm");
      for (size_t i = 0; i < perm.size(); ++i) {
        moved.at[static_cast<size_t>(perm[i])] = place.at[i];
        if (place.lane == static_cast<int64_t>(i)) moved.lane = perm[i];
      }
      return get(op.operands[0], moved);
    }
    case OpCode::kReverse: {
      const int64_t dim = op.attr<int64_t>("dim"), last = sizes(value)[static_cast<size_t>(dim)] - 1;
      if (place.lane == dim) return get_one_by_one(value, place);
      Coordinate& at = moved.at[static_cast<size_t>(dim)];
      at = at.base == nullptr ? Coordinate{nullptr, last - at.offset}
                              : Coordinate{index(llvm::Instruction::Sub, number(last - at.offset), at.base), 0};
      return get(op.operands[0], moved);
    }
    case OpCode::kGather:
      return gather(op, place);
    case OpCode::kDynamicSlice:
      return dynamic_slice(op, place);
    default:
      internal_check(ir::info(op.code).op_class == ir::OpClass::kElementwise, "{} has no memory in a package",
                     ir::info(op.code).name);
      return elementwise(op, place);
  }
}

/// Reads a constant from memory that goes on behind the constant's end as far as a block may read.
Value* Emitter::get_constant(ValueId value, const Place& place) {
  const Op* op = step_.op_of(value);
  if (op != nullptr && op->code == OpCode::kConstant)
    return codegen::emit_constant(b_, *op, dtype(value), place.lanes * side_by_side_);
  if (op != nullptr && op->code == OpCode::kBroadcast) return broadcast(*op, place);
  const auto key = std::pair(value, slack_);
  if (!constants_.contains(key)) constants_[key] = table(step_.constant(value));
  return load_from(constants_.at(key), step_.constant(value), place);
}

/// A constant's elements in the object.
llvm::GlobalVariable* Emitter::table(const interpreter::Array& array) {
  std::vector<std::byte> bytes = array.bytes;
  bytes.resize(bytes.size() + static_cast<size_t>(slack_ * size_of(array.dtype)));
  const llvm::StringRef data(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return global(llvm::ConstantDataArray::getString(b_.getContext(), data, false), "constant");
}

Value* Emitter::load_from(llvm::GlobalVariable* table, const interpreter::Array& array, const Place& place) {
  Buffer buffer{table, std::vector<int64_t>(array.sizes.size(), 1), array.dtype};
  for (size_t i = array.sizes.size(); i-- > 1;) buffer.strides[i - 1] = buffer.strides[i] * array.sizes[i];
  return load(buffer, place, array.sizes);
}

Value* Emitter::get_one_by_one(ValueId value, const Place& place) {
  const auto dim = static_cast<size_t>(place.lane);
  const int64_t last = sizes(value)[dim] - 1;
  Value* all = llvm::PoisonValue::get(register_type(dtype(value), place.lanes));
  for (unsigned i = 0; i < place.lanes; ++i) {
    Place one{place.at, -1, 1};
    one.at[dim].offset += i;
    if (one.at[dim].base == nullptr) {
      one.at[dim].offset = std::min(one.at[dim].offset, last);
    } else {
      Value* at = sum(one.at[dim]);
      one.at[dim] = {b_.CreateSelect(b_.CreateICmpSGT(at, number(last)), number(last), at), 0};
    }
    all = b_.CreateInsertElement(all, b_.CreateExtractElement(get(value, one), uint64_t{0}), uint64_t{i});
  }
  return all;
}

/// About how many operations wait for each other between memory, or sums of products, and the value.
int64_t Emitter::depth(ValueId value) {
  const Op* op = step_.op_of(value);
  if (op == nullptr || step_.is_constant(value) || (buffers_.contains(value) && !current_.contains(value))) return 0;
  if (const auto found = depths_.find(value); found != depths_.end()) return found->second;
  if (is_product(step_, *op)) return 0;
  int64_t most = 0;
  for (ValueId operand : op->operands) most = std::max(most, depth(operand));
  const bool computes = ir::info(op->code).op_class == ir::OpClass::kElementwise;
  return depths_[value] = most + (computes ? ir::traits_of(op->code).instructions : 0);
}

/// The deepest operand is computed first: the longest chain of ops begins with sums of products, and these sums should
/// be complete before others.
Value* Emitter::elementwise(const Op& op, const Place& place) {
  std::vector<size_t> order(op.operands.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return depth(op.operands[i]); });
  std::vector<Value*> operands(op.operands.size());
  for (size_t i : order) operands[i] = get(op.operands[i], place);
  const DType from = dtype(op.operands[op.code == OpCode::kSelect ? 1 : 0]), to = dtype(op.results[0]);
  const bool integers = to == DType::kI32 || to == DType::kI64;
  if (integers && (op.code == OpCode::kDiv || op.code == OpCode::kRem))
    return integer_division(op, operands[0], operands[1]);
  // What is emitted while sums are looked for is one block, which is thrown away.
  if (recording_ != nullptr && ir::traits_of(op.code).by_library)
    return b_.CreateFreeze(llvm::PoisonValue::get(register_type(to, place.lanes)));
  return emit_without_library(b_, target_, op, from, to, operands, alone_);
}

Value* Emitter::broadcast(const Op& op, const Place& place) {
  Place inner{{}, -1, 1};
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  for (size_t i = 0; i < dims.size(); ++i) {
    inner.at.push_back(place.at[static_cast<size_t>(dims[i])]);
    if (dims[i] == place.lane) {
      inner.lane = static_cast<int64_t>(i);
      inner.lanes = place.lanes;
    }
  }
  return splat(get(op.operands[0], inner), place.lanes);
}

/// The place in a reshape's operand: by the element's number in order, of which the last dim is left out if both have
/// it. None where neighbours aren't neighbours there.
std::optional<Place> Emitter::reshaped(const Op& op, const Place& place) {
  const std::vector<int64_t> outer = sizes(op.results[0]), inner = sizes(op.operands[0]);
  const bool same_last = !outer.empty() && !inner.empty() && outer.back() == inner.back();
  const auto last = static_cast<int64_t>(outer.size()) - 1;
  if (place.lane >= 0 && !(same_last && place.lane == last)) return std::nullopt;
  const size_t kept = same_last ? 1 : 0;
  Coordinate number_in_order;
  for (size_t i = 0; i + kept < outer.size(); ++i) {
    Coordinate& n = number_in_order;
    n.offset = n.offset * outer[i] + place.at[i].offset;
    if (n.base != nullptr) n.base = outer[i] == 1 ? n.base : index(llvm::Instruction::Mul, n.base, outer[i]);
    if (place.at[i].base != nullptr)
      n.base = n.base ? index(llvm::Instruction::Add, n.base, place.at[i].base) : place.at[i].base;
  }
  Place moved{std::vector<Coordinate>(inner.size()), place.lane < 0 ? -1 : static_cast<int64_t>(inner.size()) - 1,
              place.lanes};
  if (same_last) moved.at.back() = place.at.back();
  size_t dims = 0;  // of more than one element
  for (size_t i = 0; i + kept < inner.size(); ++i) dims += inner[i] > 1 ? 1 : 0;
  for (size_t i = inner.size() - kept; i-- > 0;) {
    if (inner[i] == 1) continue;
    Coordinate& n = number_in_order;
    if (n.base == nullptr) {
      moved.at[i].offset = n.offset % inner[i];
      n.offset /= inner[i];
    } else if (--dims == 0) {  // the first such dim takes the whole quotient
      moved.at[i] = n;
    } else {
      Value* all = this->sum(n);
      moved.at[i] = {index(llvm::Instruction::URem, all, inner[i]), 0};
      n = {index(llvm::Instruction::UDiv, all, inner[i]), 0};
    }
  }
  return moved;
}

void Emitter::fail_if(Value* any) {
  Value* before = b_.CreateLoad(b_.getInt32Ty(), bad_);
  b_.CreateStore(b_.CreateSelect(any, b_.getInt32(3), before), bad_);
}

Value* Emitter::checked_index(Value* index, int64_t most) {
  index = b_.CreateExtractElement(index, uint64_t{0});
  Value* wide = b_.CreateSExtOrTrunc(index, b_.getInt64Ty());
  Value* outside = b_.CreateICmpUGT(wide, b_.getInt64(static_cast<uint64_t>(most)));
  if (recording_ == nullptr) fail_if(outside);
  return b_.CreateZExtOrTrunc(b_.CreateSelect(outside, b_.getInt64(0), wide), index_);
}

Value* Emitter::gather(const Op& op, const Place& place) {
  const size_t dims = sizes(op.operands[1]).size();
  if (place.lane >= 0 && place.lane < static_cast<int64_t>(dims)) return get_one_by_one(op.results[0], place);
  Place index{{place.at.begin(), place.at.begin() + static_cast<std::ptrdiff_t>(dims)}, -1, 1};
  Value* row = checked_index(get(op.operands[1], index), sizes(op.operands[0])[0] - 1);
  Place inner{{{row, 0}}, place.lane < 0 ? -1 : place.lane - static_cast<int64_t>(dims) + 1, place.lanes};
  inner.at.insert(inner.at.end(), place.at.begin() + static_cast<std::ptrdiff_t>(dims), place.at.end());
  return get(op.operands[0], inner);
}

Value* Emitter::dynamic_slice(const Op& op, const Place& place) {
  const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  const int64_t most = sizes(op.operands[0])[dim] - sizes(op.results[0])[dim];
  Value* start = checked_index(get(op.operands[1], {{}, -1, 1}), most);
  Place moved = place;
  Coordinate& at = moved.at[dim];
  at.base = at.base ? b_.CreateAdd(at.base, start) : start;
  return get(op.operands[0], moved);
}

/// Which lanes of a vector are elements: lanes after the last column are not.
Value* Emitter::valid(Value* vector) {
  auto* type = llvm::cast<llvm::FixedVectorType>(vector->getType());
  auto* flags = llvm::FixedVectorType::get(b_.getInt1Ty(), type->getNumElements());
  return valid_ != nullptr && valid_->getType() == flags ? valid_ : llvm::Constant::getAllOnesValue(flags);
}

/// Integer division as docs/ir.md defines it: by 0 is an error, the least integer by -1 wraps. Lanes after the last
/// column divide by 1.
Value* Emitter::integer_division(const Op& op, Value* x, Value* y) {
  llvm::Type* type = x->getType();
  Value* one = llvm::ConstantInt::get(type, 1);
  Value* zero = llvm::Constant::getNullValue(type);
  Value* by_zero = b_.CreateICmpEQ(y, zero);
  Value* wraps = b_.CreateICmpEQ(y, llvm::ConstantInt::getSigned(type, -1));
  if (recording_ == nullptr) fail_if(b_.CreateOrReduce(b_.CreateAnd(by_zero, valid(y))));
  Value* safe = b_.CreateSelect(b_.CreateOr(by_zero, wraps), one, y);
  if (op.code == OpCode::kRem) return b_.CreateSelect(wraps, zero, b_.CreateSRem(x, safe));
  return b_.CreateSelect(wraps, b_.CreateNeg(x), b_.CreateSDiv(x, safe));
}

}  // namespace weft::packages
