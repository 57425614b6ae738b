// Products of bytes: one function for each kind of instruction.
#include "packages/emit/dots.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/IntrinsicsARM.h>
#include <llvm/IR/IntrinsicsWebAssembly.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace weft::packages {
namespace {

using llvm::FixedVectorType;
using llvm::IRBuilder;
using llvm::Value;

unsigned count_of(Value* vector) { return llvm::cast<FixedVectorType>(vector->getType())->getNumElements(); }

/// The first `count` elements of the vector. If it has fewer, the elements behind them may be anything.
Value* resized(IRBuilder<>& b, Value* vector, unsigned count) {
  const unsigned given = count_of(vector);
  if (given == count) return vector;
  std::vector<int> from;
  for (unsigned i = 0; i < count; ++i) from.push_back(i < given ? static_cast<int>(i) : llvm::PoisonMaskElem);
  return b.CreateShuffleVector(vector, from);
}

Value* as(IRBuilder<>& b, Value* vector, unsigned bits) {
  const unsigned all = count_of(vector) * vector->getType()->getScalarSizeInBits();
  return b.CreateBitCast(vector, FixedVectorType::get(b.getIntNTy(bits), all / bits));
}

/// Chooses one of three intrinsics, for vectors of 128, 256 and 512 bits, by the width of `like`.
llvm::Intrinsic::ID of_width(Value* like, llvm::Intrinsic::ID narrow, llvm::Intrinsic::ID middle,
                             llvm::Intrinsic::ID wide) {
  const unsigned bits = count_of(like) * like->getType()->getScalarSizeInBits();
  internal_check(bits == 128 || bits == 256 || bits == 512, "no vector has {} bits", bits);
  return bits == 128 ? narrow : bits == 256 ? middle : wide;
}

/// Widens all factors to 32 bits and adds one product at a time, for targets without a better instruction.
Value* plain(IRBuilder<>& b, Value* total, Value* word, Value* weights) {
  const unsigned lanes = count_of(total);
  Value* left = as(b, word, 8);
  for (unsigned k = 0; k < 4; ++k) {
    std::vector<int> of_lane;
    for (unsigned lane = 0; lane < lanes; ++lane) of_lane.push_back(static_cast<int>(4 * lane + k));
    Value* x = b.CreateSExt(b.CreateShuffleVector(left, of_lane), total->getType());
    Value* w = b.CreateSExt(b.CreateShuffleVector(weights, of_lane), total->getType());
    total = b.CreateAdd(total, b.CreateMul(x, w));
  }
  return total;
}

/// Multiplies numbers of 16 bits, and adds two neighbouring products at a time in 32 bits: pmaddwd, and WebAssembly's
/// dot.
Value* pairs(IRBuilder<>& b, const Target& target, Value* total, Value* word, Value* weights) {
  Value* left = as(b, word, 16);
  Value* right = b.CreateSExt(weights, left->getType());
  if (target.architecture == "wasm32")
    return b.CreateAdd(total, b.CreateIntrinsic(llvm::Intrinsic::wasm_dot, {}, {left, right}));
  return b.CreateAdd(total, b.CreateIntrinsic(llvm::Intrinsic::x86_sse2_pmadd_wd, {}, {left, right}));
}

/// Multiplies bytes without a sign by bytes with a sign, and adds two neighbouring products at a time in 16 bits, where
/// large sums would saturate. So the signs of the left factors go to the weights first: two products are then 2 * 127 *
/// 127 at most.
Value* signs_moved(IRBuilder<>& b, Value* total, Value* word, Value* weights) {
  Value* left = as(b, word, 8);
  Value* size = b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, left, b.getFalse());
  Value* right = nullptr;
  if (count_of(left) == 64) {
    Value* negative = b.CreateICmpSLT(left, llvm::Constant::getNullValue(left->getType()));
    right = b.CreateSelect(negative, b.CreateNeg(weights), weights);
  } else {
    const auto sign = count_of(left) == 16 ? llvm::Intrinsic::x86_ssse3_psign_b_128 : llvm::Intrinsic::x86_avx2_psign_b;
    right = b.CreateIntrinsic(sign, {}, {weights, left});
  }
  const auto multiply = of_width(left, llvm::Intrinsic::x86_ssse3_pmadd_ub_sw_128,
                                 llvm::Intrinsic::x86_avx2_pmadd_ub_sw, llvm::Intrinsic::x86_avx512_pmaddubs_w_512);
  Value* twos = b.CreateIntrinsic(multiply, {}, {size, right});
  const auto add = of_width(left, llvm::Intrinsic::x86_sse2_pmadd_wd, llvm::Intrinsic::x86_avx2_pmadd_wd,
                            llvm::Intrinsic::x86_avx512_pmaddw_d_512);
  Value* fours = b.CreateIntrinsic(add, {}, {twos, llvm::ConstantInt::get(twos->getType(), 1)});
  return b.CreateAdd(total, fours);
}

/// vpdpbusd: multiplies 4 bytes without a sign by 4 bytes with a sign.
Value* unsigned_by_signed(IRBuilder<>& b, Value* total, Value* word, Value* weights) {
  const auto dot = of_width(total, llvm::Intrinsic::x86_avx512_vpdpbusd_128, llvm::Intrinsic::x86_avx512_vpdpbusd_256,
                            llvm::Intrinsic::x86_avx512_vpdpbusd_512);
  return b.CreateIntrinsic(dot, {}, {total, word, as(b, weights, 32)});
}

/// NEON without sdot: adds two products at a time in 16 bits, 2 * 127 * 127 at most, and then two of these sums in 32
/// bits.
Value* long_products(IRBuilder<>& b, Value* total, Value* word, std::span<Value* const> weights) {
  Value *left = as(b, word, 16), *twos = nullptr;
  auto* wide = FixedVectorType::get(b.getInt16Ty(), 8);
  for (int half = 0; half < 2; ++half) {
    std::vector<int> of_lane;
    for (unsigned lane = 0; lane < 4; ++lane) of_lane.push_back(static_cast<int>(2 * lane) + half);
    Value* x = b.CreateSExt(as(b, b.CreateShuffleVector(left, of_lane), 8), wide);
    Value* product = b.CreateMul(x, b.CreateSExt(weights[static_cast<size_t>(half)], wide));
    twos = half == 0 ? product : b.CreateAdd(twos, product);
  }
  auto* sums = FixedVectorType::get(b.getInt32Ty(), 4);
  return b.CreateAdd(total, b.CreateIntrinsic(llvm::Intrinsic::aarch64_neon_saddlp, {sums, wide}, {twos}));
}

/// Arm's DSP instructions: bytes 0 and 2, then 1 and 3, are widened to 16 bits and multiplied in pairs.
Value* halfwords(IRBuilder<>& b, Value* total, Value* word, Value* weights) {
  const auto widened = [&](Value* bytes, bool odd) {
    if (odd) bytes = b.CreateIntrinsic(llvm::Intrinsic::fshr, {b.getInt32Ty()}, {bytes, bytes, b.getInt32(8)});
    return b.CreateIntrinsic(llvm::Intrinsic::arm_sxtb16, {}, {bytes});
  };
  Value* sum = b.CreateExtractElement(total, uint64_t{0});
  Value* left = b.CreateExtractElement(word, uint64_t{0});
  Value* right = b.CreateExtractElement(as(b, weights, 32), uint64_t{0});
  for (const bool odd : {false, true})
    sum = b.CreateIntrinsic(llvm::Intrinsic::arm_smlad, {}, {widened(left, odd), widened(right, odd), sum});
  return b.CreateInsertElement(llvm::PoisonValue::get(total->getType()), sum, uint64_t{0});
}

/// The lanes of the narrowest vector that the target's instruction takes.
unsigned least_lanes(const Target& target) {
  return target.dots == Dots::kPlain || target.dots == Dots::kHalfwords ? 1 : 4;
}

}  // namespace

int64_t elements_in_word(const Target& target) { return target.dots == Dots::kPairs ? 2 : 4; }

int64_t stored_offset(const Target& target) { return target.dots == Dots::kUnsigned ? 128 : 0; }

unsigned weight_vectors(const Target& target) { return target.dots == Dots::kLong ? 2 : 1; }

std::vector<std::pair<unsigned, unsigned>> order_of_weights(const Target& target, unsigned lanes) {
  const unsigned vectors = weight_vectors(target);
  const unsigned rows = static_cast<unsigned>(elements_in_word(target)) / vectors;
  std::vector<std::pair<unsigned, unsigned>> order;
  for (unsigned vector = 0; vector < vectors; ++vector)
    for (unsigned lane = 0; lane < lanes; ++lane)
      for (unsigned row = 0; row < rows; ++row) order.emplace_back(lane, vector * rows + row);
  return order;
}

Value* emit_dot(IRBuilder<>& b, const Target& target, Value* total, Value* word, std::span<Value* const> weights) {
  const unsigned given = count_of(total), lanes = std::max(given, least_lanes(target));
  total = resized(b, total, lanes);
  word = resized(b, word, lanes);
  std::vector<Value*> right;
  for (Value* each : weights) right.push_back(resized(b, each, count_of(each) / given * lanes));
  const auto result = [&]() -> Value* {
    switch (target.dots) {
      case Dots::kPlain:
        return plain(b, total, word, right[0]);
      case Dots::kPairs:
        return pairs(b, target, total, word, right[0]);
      case Dots::kSignsMoved:
        return signs_moved(b, total, word, right[0]);
      case Dots::kUnsigned:
        return unsigned_by_signed(b, total, word, right[0]);
      case Dots::kSigned:
        return b.CreateIntrinsic(llvm::Intrinsic::aarch64_neon_sdot, {total->getType(), as(b, word, 8)->getType()},
                                 {total, as(b, word, 8), right[0]});
      case Dots::kLong:
        return long_products(b, total, word, right);
      case Dots::kHalfwords:
        return halfwords(b, total, word, right[0]);
    }
    internal_error("no such instruction");
  }();
  return resized(b, result, given);
}

}  // namespace weft::packages
