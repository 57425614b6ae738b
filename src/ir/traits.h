#pragma once

#include <cstdint>

namespace weft::ir {

/// How code generation does an op (passes/layout/fuse.h, lowering_of, which may refuse a special case of a way).
enum class Codegen : uint8_t {
  kCall,       ///< a kernel of the runtime; where it has none the interpreter's runs, counted in the statistics
  kPointwise,  ///< element by element, in the registers of a loop nest
  kView,       ///< no code: whoever reads the result reads the operand's elements in place
  kAlias,      ///< no code: the same memory under another shape
  kReduction,  ///< along rows, in a loop nest, where it is over the last dim
  kProduct,    ///< the micro-kernel of packed products
  kRows,       ///< rows copied beside zeros
  kJoin,       ///< rows copied beside others; parts of equal width in a loop nest
  kScan,       ///< a loop in machine code, or its region's stages step by step
  kRegions     ///< regions with stages of their own
};

/// When row i of a result (its element i of dim 0) is a function of row i of those operands that have rows, and of
/// all of the others. What says kNever sums over rows, moves them, or hasn't been thought about.
enum class Rows : uint8_t {
  kNever,
  kAlways,        ///< elementwise
  kFresh,         ///< there is no operand: the result's rows are all alike or numbered
  kReshaped,      ///< if they lead operand and result under the same name (ir/program.h, Ragged)
  kBroadcast,     ///< if dim 0 stays dim 0
  kDim,           ///< if the attribute `dim` is another than 0
  kDims,          ///< if the attribute `dims` does not name 0
  kProduct,       ///< if the second operand has no rows, and the first a dim besides
  kBatchProduct,  ///< if both have rows and two dims besides
  kLookup         ///< if the first operand, the table, has no rows
};

/// The batching rule: how an op is done for the stacked operands of all steps at once, `f32[B,8]` becoming
/// `f32[T,B,8]` (passes/loops/all_steps.h). With kNone it stays in the loop.
enum class Batching : uint8_t {
  kNone,
  kSame,       ///< the same op; an attribute `dim` counts the new dim too
  kDims,       ///< so does each of the attribute `dims`
  kPermuted,   ///< the attribute `perm` keeps the new dim in front
  kBroadcast,  ///< the new dim is repeated or kept
  kMatmul,     ///< more rows; a batch of products if the weights differ from step to step
  kOuter,      ///< a batch of products
  kLookup      ///< one look-up in a table that is the same in every step
};

/// The dims of the first operand that a product sums over (summed_dims in ir/program.h).
enum class Contracts : uint8_t {
  kNothing,
  kLast,    ///< a [..., K]
  kInner,   ///< a [..., M, K], or with the attribute transpose_a [..., K, M]
  kLeading  ///< a [..., M]: all but the last
};

/// What doing an op twice costs, beside keeping its result in memory.
enum class Cost : uint8_t {
  kNothing,  ///< less than reading it
  kCheap,    ///< about as much as reading it
  kDear      ///< more
};

/// What phases ask about an op: a column of its row in ops.def. Whoever says nothing opts out: what the default has is
/// right for any op, if slow.
struct OpTraits {
  Codegen codegen = Codegen::kCall;
  Rows rows = Rows::kNever;
  Batching batching = Batching::kNone;
  Contracts contracts = Contracts::kNothing;
  Cost cost = Cost::kDear;
  bool declares = false;   ///< the result's type does not follow from the operands: builders and texts declare it
  bool is_linear = false;  ///< f(x1 + y1, x2 + y2) = f(x1, x2) + f(y1, y2)
  bool sums = false;       ///< an element of the result sums up many: 16-bit types accumulate in f32
  bool may_move =
      false;  ///< cheap movement that loops rolled up from copies may differ in (passes/rolling/op_sequence.h)
  bool is_exact16 = false;  ///< on a 16-bit floating type the result is of that type before any rounding
  int8_t table = -1;        ///< the operand that each row of the result reads as a whole: weights, a table
  /// Machine instructions a vector of results takes (f32, f64, integers), measured by compiling one: what LLVM's time
  /// is bounded by.
  uint8_t instructions = 1, instructions_f64 = 1, instructions_int = 1;

  // Each returns the traits with one of them set, for ops.def.
  constexpr OpTraits by(Codegen how) const {
    OpTraits changed = *this;
    changed.codegen = how;
    return changed;
  }
  constexpr OpTraits rows_if(Rows rule) const {
    OpTraits changed = *this;
    changed.rows = rule;
    return changed;
  }
  constexpr OpTraits batched(Batching rule) const {
    OpTraits changed = *this;
    changed.batching = rule;
    return changed;
  }
  constexpr OpTraits sums_over(Contracts dims) const {
    OpTraits changed = *this;
    changed.contracts = dims;
    return changed;
  }
  constexpr OpTraits costs(Cost what) const {
    OpTraits changed = *this;
    changed.cost = what;
    return changed;
  }
  constexpr OpTraits declared() const {
    OpTraits changed = *this;
    changed.declares = true;
    return changed;
  }
  constexpr OpTraits linear() const {
    OpTraits changed = *this;
    changed.is_linear = true;
    return changed;
  }
  constexpr OpTraits accumulates() const {
    OpTraits changed = *this;
    changed.sums = true;
    return changed;
  }
  constexpr OpTraits moves() const {
    OpTraits changed = *this;
    changed.may_move = true;
    return changed;
  }
  constexpr OpTraits exact16() const {
    OpTraits changed = *this;
    changed.is_exact16 = true;
    return changed;
  }
  constexpr OpTraits reads_whole(int8_t operand) const {
    OpTraits changed = *this;
    changed.table = operand;
    return changed;
  }
  constexpr OpTraits takes(uint8_t real, uint8_t f64, uint8_t integer) const {
    OpTraits changed = *this;
    changed.instructions = real;
    changed.instructions_f64 = f64;
    changed.instructions_int = integer;
    return changed;
  }
  constexpr OpTraits takes(uint8_t any) const { return takes(any, any, any); }
};

/// Where the rows of ops.def begin.
namespace traits {

inline constexpr OpTraits kOther;  ///< opts out of all
inline constexpr OpTraits kPointwise =
    OpTraits().by(Codegen::kPointwise).rows_if(Rows::kAlways).batched(Batching::kSame).costs(Cost::kCheap);
/// A kernel of the C or vector library's: operands go through memory.
inline constexpr OpTraits kLibrary = kPointwise.costs(Cost::kDear).takes(8);
inline constexpr OpTraits kMovement = OpTraits().costs(Cost::kCheap);

}  // namespace traits

}  // namespace weft::ir
