#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "ir/traits.h"
#include "ir/type.h"

namespace weft::ir {

enum class OpCode : uint8_t {
#define WEFT_OP(Enum, ...) k##Enum,
#include "ir/ops.def"
};

enum class OpClass : uint8_t { kElementwise, kMovement, kReduction, kProduct, kSource, kRegion, kOpaque };

/// How many ops there are.
inline constexpr size_t kOpCount = 0
#define WEFT_OP(...) +1
#include "ir/ops.def"
    ;

/// An op's row in ops.def, for any phase.
struct OpInfo {
  std::string_view name;
  int arity;  ///< -1: any number
  OpClass op_class;
  OpTraits traits;
};
const OpInfo& info(OpCode code);
inline const OpTraits& traits_of(OpCode code) { return info(code).traits; }
inline Elements elements_of(OpCode code) { return traits_of(code).elements; }
/// One number as all elements; constant_value() says which.
inline bool is_constant(OpCode code) { return code == OpCode::kConstant; }
/// A range of the operand along a dim.
inline bool is_range(OpCode code) { return elements_of(code) == Elements::kRange; }
/// The operand repeated along further dims.
inline bool is_repeated(OpCode code) { return elements_of(code) == Elements::kRepeated; }
/// The same memory under another shape.
inline bool is_alias(OpCode code) { return traits_of(code).lowering == Lowering::kAlias; }
/// The operands one behind the other.
inline bool is_join(OpCode code) { return traits_of(code).is_join; }
/// a + b.
inline bool is_addition(OpCode code) { return traits_of(code).adds == Adds::kSum; }
/// The operand in another dtype.
inline bool is_conversion(OpCode code) { return traits_of(code).converts; }
/// The sum over the attribute `dims`.
inline bool is_sum(OpCode code) { return info(code).op_class == OpClass::kReduction && traits_of(code).sums; }
/// The op of that text name; empty when there is none.
std::optional<OpCode> op_named(std::string_view name);

/// An index into Program::values. Ids are never reused; a value is defined once (SSA).
using ValueId = uint32_t;
inline constexpr ValueId kNoValue = ~ValueId{0};

struct Op;
/// The operand of a product that every row of the result reads as a whole; kNoValue for other ops.
ValueId weights_of(const Op& op);

/// The dims of a product's first operand (of rank `rank`) that it sums over. The product of their sizes is how many
/// multiplications one element of the result takes. Empty for other ops.
std::vector<size_t> summed_dims(const Op& product, size_t rank);

/// The number that all elements of the result are, if the op is a constant.
std::optional<double> constant_value(const Op& op);

struct Program;
/// When the op, or an op in its regions, may find an error while it runs: an index out of range, an integer division by
/// zero, an error raised by one of PyTorch's operators.
Fails fails(const Program& program, const Op& op);

/// An attribute. Floats print losslessly (`0.1`, `inf`, `nan`), dims as `dim(2*T)`, so that parse(print(p)) == p.
/// An op's type rule lists its attributes and refuses others. Annotations are allowed beside them (is_annotation).
using Attr = std::variant<bool, int64_t, double, std::vector<int64_t>, std::string, Dim>;
using Attrs = std::map<std::string, Attr, std::less<>>;

/// An attribute, true or false, that does not change what an op computes but that a pass reads.
struct Annotation {
  std::string_view name;
  std::string_view op;  ///< the op that may have it
};

/// The annotations that a pass reads. Any other name with a `.` is a note that nobody reads.
std::span<const Annotation> annotations();

/// Whether the attribute is an annotation: one of annotations(), or a note.
bool is_annotation(std::string_view attr);

/// What is wrong with an annotation of this op: it belongs to another op, or is of another type. Empty if nothing is.
std::string annotation_misfit(OpCode code, std::string_view name, const Attr& value);

/// An annotation of a scan: its backward keeps the carries only and recomputes each step. No pass moves work out of
/// such a loop, since moved work needs the values of all steps in memory at the same time.
inline constexpr std::string_view kCheckpoint = "vjp.checkpoint";

/// An attribute of a cast to f16 or bf16: readers may take the number as it was before it was rounded, and denormal
/// numbers may become zero.
inline constexpr std::string_view kExcessPrecision = "excess_precision";

/// Limits that keep programs from arbitrary text bounded; the verifier enforces them.
inline constexpr int64_t kMaxRank = 16;
inline constexpr int64_t kMaxRegionDepth = 32;
inline constexpr int64_t kMaxDim = int64_t{1} << 62;

/// Straight-line ops: a program's body, or a region of a scan, cond or while.
struct Block {
  std::vector<ValueId> args;
  std::vector<Op> ops;
  std::vector<ValueId> results;  ///< what is returned, or yielded by a step
};

struct Op {
  OpCode code;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;  ///< one, but for ops with regions and extern
  Attrs attrs;
  std::vector<Block> regions;  ///< one for scan, two for cond and while, none otherwise

  bool has(std::string_view name) const { return attrs.find(name) != attrs.end(); }
  /// The attribute; internal error if it is absent.
  const Attr& attribute(std::string_view name) const;
  /// The attribute; internal error if it is absent or of another type.
  template <typename T>
  const T& attr(std::string_view name) const;
  /// The attribute or, when it is absent, `fallback`.
  template <typename T>
  T attr_or(std::string_view name, T fallback) const;

 private:
  [[noreturn]] void refuse_type_of(std::string_view name) const;
};

struct Value {
  Type type;
  std::string name;  ///< without the %; unique in the program when printed, may be empty
};

/// An attribute that is a size: an integer, or a dim if the size has symbols (`start = dim(T-1)`).
Dim size_attr(const Op& op, std::string_view name);
Attr as_attr(Dim size);
/// Whether the attribute is a size that is stored as an integer when it is constant: a slice's bound or size, or a
/// pad's number of new elements.
bool is_bound(std::string_view attr);

/// The elements start..limit-1 along a dim.
struct SliceRange {
  int64_t dim, start, limit;
  bool operator==(const SliceRange&) const = default;
};
/// The range that a slice takes; none if a bound is no number.
std::optional<SliceRange> constant_range(const Op& slice);

/// A result that takes the memory of an input, `return %p2 in %p`: the caller gives the memory up, and finds the result
/// in it. `input` and `result` are positions. Results' values don't depend on it.
struct Donation {
  size_t input, result;
  bool operator==(const Donation&) const = default;
};

/// A program: a function from tensors to tensors. A plain value: copy it to keep it.
struct Program {
  std::string name = "main";
  std::vector<Value> values;
  Block body;
  std::vector<Donation> donations;  ///< by result; an input is in at most one

  const Type& type(ValueId id) const { return values[id].type; }
  ValueId new_value(Type type, std::string name = "");
};

/// What makes a scan ragged (docs/ir.md, scan): how many rows each step works on, and the symbols that name them.
struct Ragged {
  ValueId batch_sizes;  ///< i64[length]
  Dim rows;             ///< B, a symbol: outside the region the batch's rows, inside it the rows of the step
  Dim packed;           ///< N, a symbol: the sum of the rows of all steps
};

/// Whether these can be the sizes of a ragged scan: rows and packed rows are symbols, and nothing else has the same
/// name.
bool are_ragged_sizes(const Dim& rows, const Dim& packed, const Dim& length);
/// Whether the type has a ragged scan's rows as its leading dim.
bool has_rows(const Type& type, const Ragged& ragged);
/// Whether one of the type's dims is or contains the rows.
bool mentions_rows(const Type& type, const Ragged& ragged);

/// The type of a stack of all steps' values ([length, ...], or [packed, ...] for rows of a ragged scan), and the type
/// of one step of a stack.
Type stacked(const Type& step, const Dim& length, const std::optional<Ragged>& ragged);
Type step_of(const Type& stack, const std::optional<Ragged>& ragged);

/// Scan's operands, region arguments and results, each split into its carry part and its xs or ys part.
struct ScanView {
  explicit ScanView(const Op& op);
  int64_t carries;
  bool reverse;
  Dim length;
  std::optional<Ragged> ragged;
  const Block& region;
  std::vector<ValueId> inits, xs;              ///< operands, but for batch_sizes
  std::vector<ValueId> carry_args, x_args;     ///< region arguments
  std::vector<ValueId> carry_outs, y_outs;     ///< region results
  std::vector<ValueId> carry_results, stacks;  ///< op results
};

/// The inputs of the program that are batch sizes of a ragged scan, each with the scan's symbols.
std::map<ValueId, Ragged> batch_sizes_inputs(const Program& program);

/// The result types that an op's type rule gives. For ops whose type is declared (OpTraits::declares) `declared` is
/// checked and returned. Throws the user's error when operands don't fit, e.g. "matmul: the operands' inner sizes
/// differ, 5 in f32[B,5] and 6 in f32[6,8]".
std::vector<Type> infer_types(const Program& program, const Op& op, const std::vector<Type>& declared);

template <typename T>
const T& Op::attr(std::string_view name) const {
  const T* value = std::get_if<T>(&attribute(name));
  if (value == nullptr) refuse_type_of(name);
  return *value;
}

template <typename T>
T Op::attr_or(std::string_view name, T fallback) const {
  return has(name) ? attr<T>(name) : fallback;
}

}  // namespace weft::ir
