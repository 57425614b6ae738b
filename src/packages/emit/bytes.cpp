// Products of bytes: a left operand's rows are rounded to 8 bits before the nests that multiply them. StoredWeights
// says to which numbers the rows are rounded; the numbers don't depend on the target.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <functional>

#include "codegen/float_ops.h"
#include "packages/emit/dots.h"
#include "packages/emit/emitter.h"

namespace weft::packages {
namespace {

using ir::Op;
using ir::ValueId;
using llvm::Value;

constexpr int64_t kWrittenVectors = 8;  // of a row; more are a loop
constexpr int64_t kVectorsATurn = 4;    // of that loop
constexpr unsigned kNarrow = 4;         // lanes of the narrowest vectors: with fewer, LLVM computes in other registers
constexpr double kLeastSize = 0x1p-100;
constexpr uint32_t kInfinity = 0x7f800000, kMagnitude = 0x7fffffff;  // bits of f32
// 1.5 * 2^23: added to a number of a few bits it leaves the nearest integer in the lowest bits, ties to even.
constexpr double kToInteger = 0x1.8p23;

Value* bits_of(llvm::IRBuilder<>& b, Value* floats) {
  return b.CreateBitCast(floats, floats->getType()->getWithNewType(b.getInt32Ty()));
}

Value* larger(llvm::IRBuilder<>& b, Value* x, Value* y) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y); }

}  // namespace

bool Emitter::in_bytes(const Part& part) const { return multiplies_bytes(step_, *part.product); }

int64_t Emitter::turns(const Part& part) const {
  const int64_t of_word = elements_in_word(target_);
  return in_bytes(part) ? (part.size + of_word - 1) / of_word : part.size;
}

std::set<ValueId> Emitter::rounded_for(const Task& task) const {
  std::set<ValueId> rounded, seen;
  const std::function<void(ValueId)> visit = [&](ValueId value) {
    const Op* op = step_.op_of(value);
    if (op == nullptr || step_.is_constant(value) || !seen.insert(value).second) return;
    if (is_product(step_, *op) && multiplies_bytes(step_, *op)) rounded.insert(op->operands[0]);
    for (ValueId operand : op->operands)
      if (!tasks_.task_of.contains(operand)) visit(operand);
  };
  for (ValueId value : task.values) visit(value);
  return rounded;
}

/// Rounds all rows of a value, at all steps of the call.
void Emitter::round_rows(ValueId left) {
  const std::vector<int64_t> shape = sizes(left);
  const Blocks blocks = blocks_for(left);
  const int64_t of_word = elements_in_word(target_), size = 4 / of_word;
  const int64_t row = (blocks.padded() + of_word - 1) / of_word;  // words
  std::vector<int64_t> strides(shape.size(), 1);
  int64_t rows = 1;
  for (size_t dim = shape.size() - 1; dim-- > 0; rows *= shape[dim]) strides[dim] = rows;
  Rounded& rounded = rounded_[left];
  rounded.of_words = space(rows * row * 4);
  rounded.of_scales = space(rows * 4);
  const auto buffer = [&](const Memory::Slot& slot, std::vector<int64_t> scaled, DType dtype) {
    Value* base = b_.CreateGEP(b_.getInt8Ty(), state_, number(slot.offset));
    return Buffer{base, std::move(scaled), dtype, steps_ == 1 ? 0 : slot.step};
  };
  rounded.scales = buffer(rounded.of_scales, {strides.begin(), strides.end() - 1}, DType::kF32);
  for (size_t dim = 0; dim + 1 < shape.size(); ++dim) strides[dim] *= row;
  rounded.words = buffer(rounded.of_words, strides, DType::kI32);
  for (size_t dim = 0; dim + 1 < shape.size(); ++dim) strides[dim] *= 4;
  strides.back() = size;
  rounded.elements = buffer(rounded.of_words, strides, DType::kI8);
  slack_ = blocks.lanes;
  const Rounded to = rounded;
  over_steps(
      1,
      [&] {
        std::vector<int64_t> all = shape;
        all.back() = 1;
        std::vector<Coordinate> at(shape.size());
        loops(all, 0, at, [&] { round_row(left, at, blocks, to); });
      },
      steps_in_vector({left}, {}, blocks));
}

void Emitter::forget_rounded(size_t task) {
  std::erase_if(rounded_, [&](const auto& each) {
    if (last_rounded_.at(each.first) >= task) return false;
    for (const Memory::Slot& slot : {each.second.of_words, each.second.of_scales})
      memory_.give_back(slot.offset, slot.bytes);
    return true;
  });
}

/// Calls `body` for each vector of a row. Arguments: the vector's first column; the vector's number modulo
/// kVectorsATurn; how many of its lanes are elements.
void Emitter::over_row(const Blocks& blocks, const std::function<void(Coordinate, int64_t, int64_t)>& body) {
  const int64_t lanes = blocks.lanes, whole = blocks.columns / lanes, rest = blocks.columns % lanes;
  int64_t done = 0;
  if (whole > kWrittenVectors) {
    done = whole / kVectorsATurn * kVectorsATurn;
    loop(done, kVectorsATurn, [&](Value* i) {
      const auto scope = std::pair(known_, computed_);
      Value* column = b_.CreateMul(i, number(lanes), "", true, true);
      for (int64_t each = 0; each < kVectorsATurn; ++each) body({column, each * lanes}, each, lanes);
      std::tie(known_, computed_) = scope;
    });
  }
  for (; done < whole; ++done) body({nullptr, done * lanes}, done % kVectorsATurn, lanes);
  if (rest > 0) body({nullptr, done * lanes}, done % kVectorsATurn, rest);
}

/// The largest magnitude of a row, in the lanes of a narrow vector, as the bits of an f32: the bits of NaN are larger
/// than those of infinity. If a vector holds several steps, all lanes of a step have the largest magnitude of that
/// step's row.
Value* Emitter::largest(ValueId left, const std::vector<Coordinate>& row, const Blocks& blocks) {
  auto* type = llvm::FixedVectorType::get(b_.getInt32Ty(), blocks.lanes * side_by_side_);
  Value* zero = llvm::Constant::getNullValue(type);
  std::vector<Value*> most;
  for (int64_t i = 0; i < std::min(kVectorsATurn, blocks.count); ++i) most.push_back(variable(zero));
  over_row(blocks, [&](Coordinate column, int64_t turn, int64_t count) {
    Place place{row, static_cast<int64_t>(row.size()) - 1, blocks.lanes};
    place.at.back() = column;
    Value* sizes = b_.CreateAnd(bits_of(b_, get(left, place)), llvm::ConstantInt::get(type, kMagnitude));
    if (count < blocks.lanes) {
      std::vector<llvm::Constant*> mask;
      for (unsigned i = 0; i < type->getNumElements(); ++i) mask.push_back(b_.getInt1(i % blocks.lanes < count));
      sizes = b_.CreateSelect(llvm::ConstantVector::get(mask), sizes, zero);
    }
    Value* so_far = most[static_cast<size_t>(turn)];
    b_.CreateStore(larger(b_, sizes, b_.CreateLoad(type, so_far)), so_far);
  });
  Value* all = b_.CreateLoad(type, most[0]);
  for (size_t i = 1; i < most.size(); ++i) all = larger(b_, all, b_.CreateLoad(type, most[i]));
  for (unsigned half = blocks.lanes / 2; half > 0; half /= 2) {
    const unsigned kept = side_by_side_ > 1 ? type->getNumElements() : std::max(half, std::min(blocks.lanes, kNarrow));
    std::vector<int> own, other;
    for (unsigned i = 0; i < kept; ++i) {
      own.push_back(static_cast<int>(i));
      other.push_back(static_cast<int>(half < kept ? i ^ half : i + half));
    }
    all = larger(b_, b_.CreateShuffleVector(all, own), b_.CreateShuffleVector(all, other));
  }
  return all;
}

void Emitter::round_row(ValueId left, const std::vector<Coordinate>& row, const Blocks& blocks, const Rounded& to) {
  Value* most = largest(left, row, blocks);
  llvm::Type* floats = most->getType()->getWithNewType(b_.getFloatTy());
  const auto number_of = [&](double value) { return llvm::ConstantFP::get(floats, value); };
  Value* least = number_of(kLeastSize);
  Value* size = b_.CreateBitCast(larger(b_, most, b_.CreateBitCast(least, most->getType())), floats);
  Value* finite = b_.CreateICmpULT(most, llvm::ConstantInt::get(most->getType(), kInfinity));
  Value* scale = b_.CreateSelect(finite, b_.CreateFDiv(size, number_of(127)), llvm::ConstantFP::getNaN(floats));
  Value* factor = b_.CreateFDiv(number_of(127), size);
  std::vector<int> of_step;
  for (unsigned step = 0; step < side_by_side_; ++step) of_step.push_back(static_cast<int>(step * blocks.lanes));
  scale = b_.CreateShuffleVector(scale, of_step);
  if (side_by_side_ == 1) factor = splat(b_.CreateShuffleVector(factor, {0}), blocks.lanes);
  store(to.scales, {row.begin(), row.end() - 1}, scale);
  over_row(blocks, [&](Coordinate column, int64_t, int64_t) {
    Place place{row, static_cast<int64_t>(row.size()) - 1, blocks.lanes};
    place.at.back() = column;
    store(to.elements, place.at, rounded(b_.CreateFMul(get(left, place), factor)));
  });
}

/// Rounds numbers of -127..127 to integers of the size of a word's elements; a number a little above 127 becomes 127.
/// NaN and larger numbers may become any integers: their rows have the scale NaN.
Value* Emitter::rounded(Value* x) {
  using codegen::number;
  x = b_.CreateFAdd(x, number(x, kToInteger + static_cast<double>(stored_offset(target_))));
  const unsigned bits = static_cast<unsigned>(32 / elements_in_word(target_));
  return b_.CreateTrunc(bits_of(b_, x), x->getType()->getWithNewType(b_.getIntNTy(bits)));
}

std::vector<Value*> Emitter::load_bytes(Value* row, int64_t offset, unsigned lanes) {
  const unsigned count = weight_vectors(target_);
  const unsigned bytes = lanes * static_cast<unsigned>(elements_in_word(target_)) / count;
  std::vector<Value*> vectors;
  for (unsigned i = 0; i < count; ++i) {
    Value* at = b_.CreateGEP(b_.getInt8Ty(), row, this->number(offset + i * bytes));
    auto* type = llvm::FixedVectorType::get(b_.getInt8Ty(), bytes);
    vectors.push_back(repeated(b_.CreateAlignedLoad(type, at, llvm::Align(bytes))));
  }
  return vectors;
}

Value* Emitter::add_word(const Part& part, const Place& word, std::span<Value* const> weights, Value* total,
                         unsigned lanes) {
  Value* left = load(rounded_.at(part.left).words, word, {});
  return emit_dot(b_, target_, total, splat(left, lanes), weights);
}

Value* Emitter::scaled(const Part& part, Value* sum, Value* scales, unsigned lanes) {
  Value* floats = b_.CreateSIToFP(sum, scales->getType());
  Value* of_row = splat(load(rounded_.at(part.left).scales, {part.rows, -1, 1}, {}), lanes);
  return b_.CreateFMul(b_.CreateFMul(floats, of_row), scales);
}

/// Variables for the sums of a part with int8 weights. They begin as zero or, unless `corrections` is null, as the
/// vectors in memory from there on.
std::vector<Value*> Emitter::begin_bytes(const Part& part, Value* corrections, const Blocks& blocks, int64_t splits) {
  const DType dtype = in_bytes(part) ? DType::kI32 : DType::kF32;
  auto* type = register_type(dtype, blocks.lanes);
  std::vector<Value*> begin(blocks.vectors * static_cast<size_t>(splits), llvm::Constant::getNullValue(type)), made;
  for (unsigned v = 0; v < blocks.vectors && corrections != nullptr; ++v) {
    const int64_t bytes = blocks.lanes * size_of(dtype);
    begin[v] = load_weights(b_.CreateGEP(b_.getInt8Ty(), corrections, number(v * bytes)), dtype, blocks.lanes, bytes);
  }
  for (unsigned step = 0; step < at_once_; ++step)
    for (Value* each : begin) made.push_back(variable(each));
  return made;
}

/// Adds the complete sums of a part with int8 weights to a sum of products, times its scales.
void Emitter::end_bytes(const Part& part, const std::vector<Value*>& partial, Value* scales, const Blocks& blocks,
                        const std::vector<Value*>& totals) {
  auto* type = register_type(DType::kF32, blocks.lanes);
  const bool words = in_bytes(part);
  for (unsigned v = 0; v < blocks.vectors; ++v) {
    const int64_t bytes = blocks.lanes * size_of(DType::kF32);
    Value* there = b_.CreateGEP(b_.getInt8Ty(), scales, number(v * bytes));
    Value* scale = load_weights(there, DType::kF32, blocks.lanes, bytes);
    for (now_ = 0; now_ < at_once_; ++now_) {
      Value* total = totals[now_ * totals.size() / at_once_ + v];
      Value* before = b_.CreateLoad(type, total);
      Value* made = add_splits(partial, v, blocks, words ? register_type(DType::kI32, blocks.lanes) : type);
      b_.CreateStore(
          words ? b_.CreateFAdd(before, scaled(part, made, scale, blocks.lanes)) : multiply_add(made, scale, before),
          total);
    }
    now_ = 0;
  }
}

/// The sum of a part's products at one place, where no block computes it: a loop of one product a turn.
Value* Emitter::plain_bytes(const Part& part, const Place& place) {
  auto* type = llvm::FixedVectorType::get(b_.getInt32Ty(), place.lanes);
  const Buffer& elements = rounded_.at(part.left).elements;
  const auto bits = static_cast<unsigned>(32 / elements_in_word(target_));
  Value* total = variable(llvm::Constant::getNullValue(type));
  const auto scope = std::pair(known_, computed_);
  loop(part.size, 1, [&](Value* k) {
    std::vector<Coordinate> at = part.rows;
    at.push_back({k, 0});
    Value* left = b_.CreateAlignedLoad(b_.getIntNTy(bits), address(elements, at), llvm::Align(1));
    left = b_.CreateXor(left, static_cast<uint64_t>(stored_offset(target_)));
    left = b_.CreateVectorSplat(place.lanes, b_.CreateSExt(left, b_.getInt32Ty()));
    Value* weights = b_.CreateFPToSI(get_stored(part, {k, part.row}, place), type);
    b_.CreateStore(b_.CreateAdd(b_.CreateLoad(type, total), b_.CreateMul(left, weights)), total);
  });
  std::tie(known_, computed_) = scope;
  return scaled(part, b_.CreateLoad(type, total), get_scales(part, place), place.lanes);
}

}  // namespace weft::packages
