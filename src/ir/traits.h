#pragma once

#include <cstdint>

namespace weft::ir {

/// How an op is lowered. A row of ops.def names the best way that there is for the op; planning::LoweringRules says
/// which one an op of a program gets, and takes kCall for the cases that a way lacks.
enum class Lowering : uint8_t {
  kCall,     ///< a stage of its own: a kernel of the runtime, else the interpreter's, which the statistics count
  kView,     ///< no code: readers of the result address the operand's elements
  kAlias,    ///< no code: the operand's memory under another shape
  kFused,    ///< part of a stage with a domain: elementwise ops, sums over the last dim, products by micro-kernels
  kRowCopy,  ///< a stage of its own: rows copied beside others (is_join) or zeros; parts of equal width are kFused
  kScan,     ///< a stage of its own: one function of machine code with the loop in it
  kLoop,     ///< a scan whose region has stages of its own, which run step by step
  kControl   ///< cond, while: a stage whose regions have stages of their own
};

/// Which elements of its first operand a result holds, and where.
enum class Elements : uint8_t {
  kComputed,  ///< other elements than the operand's
  kSame,      ///< all of them, each in its place
  kRange,     ///< along the attribute `dim`, those from `start` to before `limit`
  kRepeated,  ///< all of them, along further dims again: operand dim i is result dim `dims[i]`
  kReshaped,  ///< all of them, in order, under another shape
  kPermuted,  ///< all of them: result dim i is operand dim `perm[i]`
  kReversed   ///< all of them, along the attribute `dim` backwards
};

/// Whether an elementwise op adds or subtracts its operands. A carry to which each step adds is a running sum.
enum class Adds : int8_t {
  kNo,
  kSum,        ///< a + b
  kDifference  ///< a - b
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

/// What an op says to derivatives alone: its results are its last operands, unchanged. The pass drop_derivatives
/// removes such ops before code generation.
enum class Marks : uint8_t {
  kNothing,  ///< another op
  kStop,     ///< no gradient goes through it
  kOwn       ///< its derivative is the user's own
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
  Lowering lowering = Lowering::kCall;
  Elements elements = Elements::kComputed;
  Rows rows = Rows::kNever;
  Batching batching = Batching::kNone;
  Contracts contracts = Contracts::kNothing;
  Cost cost = Cost::kDear;
  Fails fails = Fails::kUnsaid;
  FailsWhere fails_where = FailsWhere::kEverywhere;
  Adds adds = Adds::kNo;
  Marks marks = Marks::kNothing;
  bool declares = false;   ///< the result's type does not follow from the operands: builders and text must declare it
  bool converts = false;   ///< the result is the operand, each element in its place, in the dtype that is declared
  bool is_linear = false;  ///< f(x1 + y1, x2 + y2) = f(x1, x2) + f(y1, y2)
  bool sums = false;       ///< an element of the result is a sum of many: 16-bit types accumulate in f32
  bool is_join = false;    ///< the result is the operands, one behind the other along the attribute `dim`
  bool spreads = false;    ///< the result is known from fewer bytes than its own: an operand between zeros, or repeated
  bool may_move =
      false;  ///< cheap movement, in which the copies that `roll` makes a loop of may differ (rolling/op_sequence.h)
  bool by_library = false;  ///< a function of runtime/kernels/scalar_functions.def, named as the op, which f64 calls
  bool calls_out = false;   ///< runs in PyTorch, by the attribute `call`
  bool is_exact16 = false;  ///< on 16-bit floating operands the exact result is of their type: rounding changes nothing
  bool is_slow = false;     ///< few instructions, but each of ten cycles or more: a division, a square root
  bool lays_out = false;    ///< the result is the operand as panels, in the layout that a target's kernels read
  int8_t panels = -1;       ///< the operand that is such panels
  int8_t table = -1;        ///< the operand that every row of the result reads as a whole: weights, a table
  int8_t updated = -1;      ///< the operand whose memory the result may take: the op replaces a part of it
  /// Machine instructions for one vector of results (f32, f64, integers), measured by compiling one. They bound a
  /// stage's size, and so LLVM's time.
  uint8_t instructions = 1, instructions_f64 = 1, instructions_int = 1;

  /// These traits with one trait changed. Each function below is a word of ops.def.
  template <typename T>
  constexpr OpTraits with(T OpTraits::* trait, T value) const {
    OpTraits changed = *this;
    changed.*trait = value;
    return changed;
  }
  constexpr OpTraits by(Lowering how) const { return with(&OpTraits::lowering, how); }
  constexpr OpTraits holds(Elements which) const { return with(&OpTraits::elements, which); }
  constexpr OpTraits rows_if(Rows rule) const { return with(&OpTraits::rows, rule); }
  constexpr OpTraits batched(Batching rule) const { return with(&OpTraits::batching, rule); }
  constexpr OpTraits sums_over(Contracts dims) const { return with(&OpTraits::contracts, dims); }
  constexpr OpTraits costs(Cost what) const { return with(&OpTraits::cost, what); }
  constexpr OpTraits fail(Fails when, FailsWhere where = FailsWhere::kEverywhere) const {
    return with(&OpTraits::fails, when).with(&OpTraits::fails_where, where);
  }
  constexpr OpTraits adding(Adds what) const { return with(&OpTraits::adds, what); }
  constexpr OpTraits marking(Marks what) const { return with(&OpTraits::marks, what); }
  constexpr OpTraits converting() const { return with(&OpTraits::converts, true); }
  constexpr OpTraits declared() const { return with(&OpTraits::declares, true); }
  constexpr OpTraits linear() const { return with(&OpTraits::is_linear, true); }
  constexpr OpTraits accumulates() const { return with(&OpTraits::sums, true); }
  constexpr OpTraits joins() const { return with(&OpTraits::is_join, true); }
  constexpr OpTraits spread() const { return with(&OpTraits::spreads, true); }
  constexpr OpTraits moves() const { return with(&OpTraits::may_move, true); }
  constexpr OpTraits calls_library() const { return with(&OpTraits::by_library, true); }
  constexpr OpTraits calls_pytorch() const { return with(&OpTraits::calls_out, true); }
  constexpr OpTraits exact16() const { return with(&OpTraits::is_exact16, true); }
  constexpr OpTraits slow() const { return with(&OpTraits::is_slow, true); }
  constexpr OpTraits makes_panels() const { return with(&OpTraits::lays_out, true); }
  constexpr OpTraits reads_panels(int8_t operand) const { return with(&OpTraits::panels, operand); }
  constexpr OpTraits reads_whole(int8_t operand) const { return with(&OpTraits::table, operand); }
  constexpr OpTraits in_place(int8_t operand) const { return with(&OpTraits::updated, operand); }
  constexpr OpTraits takes(uint8_t real, uint8_t f64, uint8_t integer) const {
    return with(&OpTraits::instructions, real)
        .with(&OpTraits::instructions_f64, f64)
        .with(&OpTraits::instructions_int, integer);
  }
  constexpr OpTraits takes(uint8_t any) const { return takes(any, any, any); }
};

/// The traits that rows of ops.def start from.
namespace traits {

inline constexpr OpTraits kOther;  ///< opts out of everything
/// Never fails, whatever its operands hold.
inline constexpr OpTraits kTotal = kOther.fail(Fails::kNever);
inline constexpr OpTraits kPointwise =
    kTotal.by(Lowering::kFused).rows_if(Rows::kAlways).batched(Batching::kSame).costs(Cost::kCheap);
/// An elementwise function of the C library. In f32 most are inline (codegen/library_math.h); for the others operands
/// go through memory.
inline constexpr OpTraits kLibrary = kPointwise.calls_library().costs(Cost::kDear).takes(8);
inline constexpr OpTraits kMovement = kTotal.costs(Cost::kCheap);

}  // namespace traits

}  // namespace weft::ir
