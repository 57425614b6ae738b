#pragma once

#include <optional>
#include <span>
#include <string>

#include "ir/program.h"
#include "passes/pass_runner.h"
#include "runtime/calls/kernel_call.h"

namespace weft::planning {

struct Schedule;

/// A product that is part of a stage: it computes a tile of rows by the columns of one panel, and the stage's other ops
/// run on that tile.
struct ProductTile {
  int64_t columns = 0;       ///< of the product's result
  int64_t groups = 1;        ///< gates, equal ranges of the result's columns, side by side in a panel
  int64_t unroll = 1;        ///< units of each gate in a panel
  int64_t lanes = 1;         ///< elements of a unit
  int64_t rows = 1;          ///< rows that its kernel takes at once, if more than Target::row_block
  int64_t weight_bytes = 0;  ///< bytes of weights read at every step

  /// The columns that the stage runs over.
  int64_t width() const { return columns / groups; }
};

/// Limits of code that is compiled as one piece.
struct Limits {
  int64_t stage_size;         ///< the largest stage, in the unit of Target::code_size
  int64_t access_size;        ///< the code that loads or stores one value
  int64_t stages_a_function;  ///< the most stages of a scan that is one function
  int64_t stacks_a_function;  ///< the most carries, xs and ys of such a scan
  int64_t parts;              ///< the most parts of a concatenation in a stage; a kernel joins more
  int64_t tiny_domain;        ///< over so few elements, a stage costs less than the start of another one
};

/// Which views of operands a kernel can read in place. Other views are copied first.
enum class OperandViews {
  kNone,
  kColumns,  ///< slices of the columns of a matrix, or several such slices joined
  kMatrix    ///< slices of both dims of a matrix
};

/// What lowering asks about the machine that a program is compiled for. Fusion and the planner know the machine by this
/// interface only; code generation belongs to one target (planning/cpu).
class Target {
 public:
  virtual ~Target() = default;

  /// All that choices depend on beside the program and the settings, in words: two targets with the same description
  /// give a program the same plan.
  virtual std::string description() const = 0;

  /// Passes that lay memory out as the target's kernels read it. They run after the passes for all targets.
  virtual std::span<const passes::Pass> layout_passes() const = 0;

  /// Whether stages compute elements of the type. Ops on other types are calls.
  virtual bool computes(DType dtype) const = 0;

  /// Elements of a vector in a stage whose widest type is `dtype`.
  virtual int64_t lanes(DType dtype) const = 0;

  /// Rows that a stage does at once if the tiles of its products have `vectors` vectors in all, of `lanes` lanes; at
  /// least 1.
  virtual int64_t row_block(int64_t vectors, int64_t lanes) const = 0;

  /// How a stage computes the product; none where the product is a call.
  virtual std::optional<ProductTile> tile(const ir::Program& program, const ir::Op& product) const = 0;

  /// About how much code an op of a stage is, without its loads and stores. Compile time grows with it.
  virtual int64_t code_size(const ir::Program& program, const ir::Op& op) const = 0;

  virtual const Limits& limits() const = 0;

  /// Which views of operands the kernel of a call can read in place.
  virtual OperandViews views(const ir::Program& program, const ir::Op& op) const = 0;

  /// The kernel, with its arguments, for an op that is a call. A CallbackCall where there is none for the op, its types
  /// or its layout. Needs the buffers of the op's operands and results.
  virtual runtime::KernelCall kernel(Schedule& schedule, const ir::Op& op) const = 0;
};

}  // namespace weft::planning
