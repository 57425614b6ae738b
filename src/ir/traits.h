#pragma once

#include <cstdint>

namespace weft::ir {

/// How code generation lowers an op. LoweringRules (planning/lowering.h) takes kCall where a lowering can't handle a
/// case.
enum class Codegen : uint8_t {
  kCall,       ///< a kernel of the runtime, else the interpreter's, which the statistics count
  kPointwise,  ///< element by element, in the registers of a loop nest
  kView,       ///< no code: readers of the result read the operand's elements in place
  kAlias,      ///< no code: the same memory under another shape
  kReduction,  ///< in a loop nest, row by row; only a reduction over the last dim
  kProduct,    ///< the micro-kernel of packed products
  kRows,       ///< rows copied beside zeros
  kJoin,       ///< rows copied beside others; parts of equal width in a loop nest
  kScan,       ///< a loop in machine code, or its region's stages step by step
  kRegions     ///< regions with stages of their own
};

/// Row independence: when row i of a result (its element i of dim 0) depends on row i only of the operands that have
/// rows, and on the other operands as a whole. kNever: the op sums over rows or moves them, or nobody has looked.
enum class Rows : uint8_t {
  kNever,
  kAlways,        ///< elementwise
  kFresh,         ///< there is no operand: all rows of the result are alike, or numbered
  kReshaped,      ///< if operand and result have the same symbol for their rows (ir/program.h, Ragged) as dim 0
  kBroadcast,     ///< if dim 0 stays dim 0
  kDim,           ///< if the attribute `dim` is not 0
  kDims,          ///< if the attribute `dims` does not name 0
  kProduct,       ///< if the second operand has no rows, and the first has a dim beside its rows
  kBatchProduct,  ///< if both operands have rows, and two more dims
  kLookup         ///< if the first operand, the table, has no rows
};

/// The batching rule: how an op is done for the stacked operands of all steps at once, `f32[B,8]` becoming
/// `f32[T,B,8]` (passes/loops/all_steps.h). With kNone it stays in the loop.
enum class Batching : uint8_t {
  kNone,
  kSame,       ///< the same op; an attribute `dim` counts the new dim too
  kDims,       ///< the same op; each of the attribute `dims` counts the new dim too
  kPermuted,   ///< the attribute `perm` keeps the new dim in front
  kBroadcast,  ///< the new dim is repeated or kept
  kMatmul,     ///< more rows; a batch of products if the weights differ from step to step
  kOuter,      ///< a batch of products
  kLookup,     ///< one look-up in a table that is the same in every step
  kWindows     ///< rows of a tensor that is the same in every step, by one look-up of their indices
};

/// The dims of the first operand that a product sums over (summed_dims in ir/program.h).
enum class Contracts : uint8_t {
  kNothing,
  kLast,    ///< a [..., K]
  kInner,   ///< a [..., M, K], or with the attribute transpose_a [..., K, M]
  kLeading  ///< a [..., M]: all but the last
};

/// What computing an op a second time costs, compared with keeping its result in memory and reading it.
enum class Cost : uint8_t {
  kNothing,  ///< less than reading it
  kCheap,    ///< about as much as reading it
  kDear      ///< more
};

/// When an op may find an error while it runs. Until then no result is written to the memory of an input
/// (planning/fusion/donations.h).
enum class Fails : uint8_t {
  kUnsaid,         ///< treated as kAnyTime; no row of the table leaves it so
  kNever,          ///< for no contents of its operands; the ops in its regions have traits of their own
  kBeforeWriting,  ///< finds all its errors before it writes anything
  kAnyTime         ///< possibly after a part of its results is written
};

/// Where an op that may fail does so.
enum class FailsWhere : uint8_t {
  kEverywhere,
  kIntegers,  ///< in results of integers
  kRagged     ///< in a scan over packed sequences (ir/program.h, Ragged)
};

/// What phases ask about an op: the last column of its row in ops.def. Each default opts out: it is right for any op,
/// though slow.
struct OpTraits {
  Codegen codegen = Codegen::kCall;
  Rows rows = Rows::kNever;
  Batching batching = Batching::kNone;
  Contracts contracts = Contracts::kNothing;
  Cost cost = Cost::kDear;
  Fails fails = Fails::kUnsaid;
  FailsWhere fails_where = FailsWhere::kEverywhere;
  bool declares = false;    ///< the result's type does not follow from the operands: builders and text must declare it
  bool is_linear = false;   ///< f(x1 + y1, x2 + y2) = f(x1, x2) + f(y1, y2)
  bool sums = false;        ///< an element of the result is a sum of many: 16-bit types accumulate in f32
  bool may_move = false;    ///< cheap movement; when `roll` makes a loop of copies, the copies may differ in it
                            ///< (rolling/op_sequence.h)
  bool by_library = false;  ///< f64 calls a function of runtime/scalar_functions.def with the op's name
  bool is_exact16 = false;  ///< on 16-bit floating operands the exact result is of their type: rounding changes nothing
  int8_t table = -1;        ///< the operand that every row of the result reads as a whole: weights, a table
  int8_t updated = -1;      ///< the operand in whose memory the result may be made: what the op doesn't replace stays
  /// Machine instructions for one vector of results (f32, f64, integers), measured by compiling one. They bound a
  /// stage's size, and so LLVM's time.
  uint8_t instructions = 1, instructions_f64 = 1, instructions_int = 1;

  // Each returns the traits with one trait changed, for ops.def.
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
  constexpr OpTraits fail(Fails when, FailsWhere where = FailsWhere::kEverywhere) const {
    OpTraits changed = *this;
    changed.fails = when;
    changed.fails_where = where;
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
  constexpr OpTraits calls_library() const {
    OpTraits changed = *this;
    changed.by_library = true;
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
  constexpr OpTraits in_place(int8_t operand) const {
    OpTraits changed = *this;
    changed.updated = operand;
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

/// The traits that rows of ops.def start from.
namespace traits {

inline constexpr OpTraits kOther;  ///< opts out of everything
/// Never fails, whatever its operands hold.
inline constexpr OpTraits kTotal = kOther.fail(Fails::kNever);
inline constexpr OpTraits kPointwise =
    kTotal.by(Codegen::kPointwise).rows_if(Rows::kAlways).batched(Batching::kSame).costs(Cost::kCheap);
/// An elementwise function of the C library. In f32 most are inline (codegen/library_math.h); for the others operands
/// go through memory.
inline constexpr OpTraits kLibrary = kPointwise.calls_library().costs(Cost::kDear).takes(8);
inline constexpr OpTraits kMovement = kTotal.costs(Cost::kCheap);

}  // namespace traits

}  // namespace weft::ir
