#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <span>
#include <vector>

#include "packages/target.h"

namespace weft::packages {

// Products of bytes with sums in 32 bits, by the instructions that a target has. All give the same sums, exactly, for
// factors of -127..127: none saturates, and 2^17 products of any two fit.
//
// The left factors are one row, which is read as words of 32 bits: 4 neighbours, or 2 that were widened before. Each
// word is multiplied by as many rows of weights, and the products of a column are added to its lane.

/// How many neighbouring elements of a row make up a word.
int64_t elements_in_word(const Target& target);

/// The number that is added to each left factor before it is stored: 128 if the instruction takes left factors without
/// a sign, else 0. A column's sum is then too large by 128 times the sum of the column's weights.
int64_t stored_offset(const Target& target);

/// Where the weights of a word lie in memory, for `lanes` columns: for each byte in order its lane and its row within
/// the word.
std::vector<std::pair<unsigned, unsigned>> order_of_weights(const Target& target, unsigned lanes);

/// total + products. `total` and `word` are vectors of i32, the word the same in all lanes of a row of the left
/// operand; `weights` are bytes in the order of memory, in as many vectors as `weight_vectors` says.
llvm::Value* emit_dot(llvm::IRBuilder<>& b, const Target& target, llvm::Value* total, llvm::Value* word,
                      std::span<llvm::Value* const> weights);

/// The number of vectors that hold the weights of a word.
unsigned weight_vectors(const Target& target);

}  // namespace weft::packages
