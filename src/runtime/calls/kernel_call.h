#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "runtime/plan/size.h"
#include "runtime/threads/share.h"

namespace weft::runtime {

// Calls of the runtime's kernels, one struct a kernel, with plain arguments: buffers are indices into Plan::buffers,
// sizes are expressions over the plan's symbols. A call is printed, compared and written to a file by its fields(). All
// members of the team make the call, each for its share.

/// Rows of columns in a buffer, a column slice of wider rows perhaps.
struct MatrixPlace {
  int64_t buffer = 0;
  DimExpr rows;
  int64_t columns = 0, skip = 0, stride = 0;  ///< elements

  bool operator==(const MatrixPlace&) const = default;
  template <typename Self = MatrixPlace>
  static constexpr auto fields() {
    return std::tuple{Field{"buffer", &Self::buffer}, Field{"rows", &Self::rows}, Field{"columns", &Self::columns},
                      Field{"skip", &Self::skip}, Field{"stride", &Self::stride}};
  }
};

/// Lays weights out in panels (PackArgs), with `pairs` in those of PairKernels. The call is left out where packing
/// isn't worth it for so few rows, or where products pack on the way (packs.h).
struct PackCall {
  static constexpr const char* kName = "pack";
  DType dtype = DType::kF32;  ///< of the weights; f16 weights get panels of f32
  int64_t source = 0, destination = 0;
  int64_t skip = 0;  ///< elements of the source before the first
  int64_t k = 0, n = 0, groups = 1, unroll = 1, ld = 0, panels = 0;
  bool transposed = false, pairs = false;
  bool may_be_left_out = false;  ///< its readers read the source if the pack is left out
  std::vector<DimExpr> rows;     ///< the rows multiplied by the panels: a sum of terms
  std::vector<DimExpr> times;    ///< how often products go over the panels: a sum of terms

  bool operator==(const PackCall&) const = default;
  template <typename Self = PackCall>
  static constexpr auto fields() {
    return std::tuple{Field{"dtype", &Self::dtype},
                      Field{"source", &Self::source},
                      Field{"destination", &Self::destination},
                      Field{"skip", &Self::skip},
                      Field{"k", &Self::k},
                      Field{"n", &Self::n},
                      Field{"groups", &Self::groups},
                      Field{"unroll", &Self::unroll},
                      Field{"ld", &Self::ld},
                      Field{"panels", &Self::panels},
                      Field{"transposed", &Self::transposed},
                      Field{"pairs", &Self::pairs},
                      Field{"may_be_left_out", &Self::may_be_left_out},
                      Field{"rows", &Self::rows},
                      Field{"times", &Self::times}};
  }
};

/// result [M, N] = the sum over rows of left[row][m] * right[row][n]. Columns may be joined from several places.
struct OuterCall {
  static constexpr const char* kName = "outer";
  DType dtype = DType::kF32;  ///< of the result; an f16 result has factors of f32
  std::vector<MatrixPlace> left, right;
  int64_t result = 0;

  bool operator==(const OuterCall&) const = default;
  template <typename Self = OuterCall>
  static constexpr auto fields() {
    return std::tuple{Field{"dtype", &Self::dtype}, Field{"left", &Self::left}, Field{"right", &Self::right},
                      Field{"result", &Self::result}};
  }
};

/// result [N] = the sum over rows. Columns may be joined from several places.
struct ColumnSumCall {
  static constexpr const char* kName = "column_sum";
  DType dtype = DType::kF32;
  std::vector<MatrixPlace> operand;
  int64_t result = 0;

  bool operator==(const ColumnSumCall&) const = default;
  template <typename Self = ColumnSumCall>
  static constexpr auto fields() {
    return std::tuple{Field{"dtype", &Self::dtype}, Field{"operand", &Self::operand}, Field{"result", &Self::result}};
  }
};

/// `batches` products [M, K] [K, N]; the matrices of the batches follow each other in memory.
struct ProductCall {
  static constexpr const char* kName = "product";
  DType dtype = DType::kF32;
  int64_t left = 0, right = 0, result = 0;
  DimExpr batches, m, n, k;
  bool transpose_left = false, transpose_right = false;

  bool operator==(const ProductCall&) const = default;
  template <typename Self = ProductCall>
  static constexpr auto fields() {
    return std::tuple{Field{"dtype", &Self::dtype},
                      Field{"left", &Self::left},
                      Field{"right", &Self::right},
                      Field{"result", &Self::result},
                      Field{"batches", &Self::batches},
                      Field{"m", &Self::m},
                      Field{"n", &Self::n},
                      Field{"k", &Self::k},
                      Field{"transpose_left", &Self::transpose_left},
                      Field{"transpose_right", &Self::transpose_right}};
  }
};

/// A sum or maximum over dims of a dense operand. Neighbouring dims that are both kept or both folded are merged, so
/// kept and folded dims alternate. At least one is folded.
struct FoldCall {
  static constexpr const char* kName = "fold";
  struct Dim {
    DimExpr size;
    bool folded = false;

    bool operator==(const Dim&) const = default;
    template <typename Self = Dim>
    static constexpr auto fields() {
      return std::tuple{Field{"size", &Self::size}, Field{"folded", &Self::folded}};
    }
  };
  DType dtype = DType::kF32;
  bool is_sum = true;  ///< else a maximum
  int64_t operand = 0, result = 0;
  std::vector<Dim> dims;

  bool operator==(const FoldCall&) const = default;
  template <typename Self = FoldCall>
  static constexpr auto fields() {
    return std::tuple{Field{"dtype", &Self::dtype}, Field{"is_sum", &Self::is_sum}, Field{"operand", &Self::operand},
                      Field{"result", &Self::result}, Field{"dims", &Self::dims}};
  }
};

/// Element i of `count` is i / step % size: the index along a dim.
struct IotaCall {
  static constexpr const char* kName = "iota";
  DType dtype = DType::kF32;
  int64_t result = 0;
  DimExpr count, size, step;

  bool operator==(const IotaCall&) const = default;
  template <typename Self = IotaCall>
  static constexpr auto fields() {
    return std::tuple{Field{"dtype", &Self::dtype}, Field{"result", &Self::result}, Field{"count", &Self::count},
                      Field{"size", &Self::size}, Field{"step", &Self::step}};
  }
};

/// Stores a size: one number.
struct SizeCall {
  static constexpr const char* kName = "size";
  DType dtype = DType::kF32;
  int64_t result = 0;
  DimExpr size;

  bool operator==(const SizeCall&) const = default;
  template <typename Self = SizeCall>
  static constexpr auto fields() {
    return std::tuple{Field{"dtype", &Self::dtype}, Field{"result", &Self::result}, Field{"size", &Self::size}};
  }
};

/// The quotient of integers, or what remains. Fails on a zero divisor.
struct DivideCall {
  static constexpr const char* kName = "divide";
  DType dtype = DType::kI64;
  bool remainder = false;
  int64_t left = 0, right = 0, result = 0;
  DimExpr count;

  bool operator==(const DivideCall&) const = default;
  template <typename Self = DivideCall>
  static constexpr auto fields() {
    return std::tuple{Field{"dtype", &Self::dtype}, Field{"remainder", &Self::remainder}, Field{"left", &Self::left},
                      Field{"right", &Self::right}, Field{"result", &Self::result},       Field{"count", &Self::count}};
  }
};

/// Strided copies into one result. Transposition, reversal, slice and broadcast have one part, concatenation has
/// several.
struct CopyCall {
  static constexpr const char* kName = "copy";
  struct Dim {
    DimExpr size, source_step, destination_step;  ///< steps in elements; a source step of 0 repeats
    bool reversed = false;                        ///< from the source's last element to its first

    bool operator==(const Dim&) const = default;
    template <typename Self = Dim>
    static constexpr auto fields() {
      return std::tuple{Field{"size", &Self::size}, Field{"source_step", &Self::source_step},
                        Field{"destination_step", &Self::destination_step}, Field{"reversed", &Self::reversed}};
    }
  };
  struct Part {
    int64_t source = 0;
    DimExpr source_start{0, {}};  ///< elements before the first
    DimExpr length{0, {}};        ///< elements from this part's start to the next part's, in the destination
    std::vector<Dim> dims;

    bool operator==(const Part&) const = default;
    template <typename Self = Part>
    static constexpr auto fields() {
      return std::tuple{Field{"source", &Self::source}, Field{"source_start", &Self::source_start},
                        Field{"length", &Self::length}, Field{"dims", &Self::dims}};
    }
  };
  int64_t element_size = 4, destination = 0;
  std::vector<Part> parts;

  bool operator==(const CopyCall&) const = default;
  template <typename Self = CopyCall>
  static constexpr auto fields() {
    return std::tuple{Field{"element_size", &Self::element_size}, Field{"destination", &Self::destination},
                      Field{"parts", &Self::parts}};
  }
};

/// result: `rows` rows of `row` elements, each of `low` zeros, `taken` elements of the source, and zeros.
struct PadCall {
  static constexpr const char* kName = "pad";
  int64_t element_size = 4, source = 0, destination = 0;
  DimExpr rows, row, low, taken;

  bool operator==(const PadCall&) const = default;
  template <typename Self = PadCall>
  static constexpr auto fields() {
    return std::tuple{Field{"element_size", &Self::element_size},
                      Field{"source", &Self::source},
                      Field{"destination", &Self::destination},
                      Field{"rows", &Self::rows},
                      Field{"row", &Self::row},
                      Field{"low", &Self::low},
                      Field{"taken", &Self::taken}};
  }
};

/// Rows of a table by an index of `count` i32 or i64 numbers. Each of the next three calls fails on a number outside
/// 0..rows-1.
struct IndexPlace {
  int64_t buffer = 0;
  DimExpr count;
  bool is_64_bit = true;

  bool operator==(const IndexPlace&) const = default;
  template <typename Self = IndexPlace>
  static constexpr auto fields() {
    return std::tuple{Field{"buffer", &Self::buffer}, Field{"count", &Self::count},
                      Field{"is_64_bit", &Self::is_64_bit}};
  }
};

/// result row i = table row index[i].
struct GatherCall {
  static constexpr const char* kName = "gather";
  int64_t element_size = 4, table = 0, result = 0;
  IndexPlace index;
  DimExpr rows, columns;  ///< of the table

  bool operator==(const GatherCall&) const = default;
  template <typename Self = GatherCall>
  static constexpr auto fields() {
    return std::tuple{Field{"element_size", &Self::element_size},
                      Field{"table", &Self::table},
                      Field{"result", &Self::result},
                      Field{"index", &Self::index},
                      Field{"rows", &Self::rows},
                      Field{"columns", &Self::columns}};
  }
};

/// result = the table with row index[i] replaced by row i of the updates.
struct ScatterCall {
  static constexpr const char* kName = "scatter";
  int64_t element_size = 4, table = 0, updates = 0, result = 0;
  IndexPlace index;
  DimExpr rows, columns;

  bool operator==(const ScatterCall&) const = default;
  template <typename Self = ScatterCall>
  static constexpr auto fields() {
    return std::tuple{Field{"element_size", &Self::element_size},
                      Field{"table", &Self::table},
                      Field{"updates", &Self::updates},
                      Field{"result", &Self::result},
                      Field{"index", &Self::index},
                      Field{"rows", &Self::rows},
                      Field{"columns", &Self::columns}};
  }
};

/// result [rows, columns]: row r is the sum of the updates whose index is r.
struct ScatterAddCall {
  static constexpr const char* kName = "scatter_add";
  DType dtype = DType::kF32;
  int64_t updates = 0, result = 0;
  IndexPlace index;
  DimExpr rows, columns;

  bool operator==(const ScatterAddCall&) const = default;
  template <typename Self = ScatterAddCall>
  static constexpr auto fields() {
    return std::tuple{Field{"dtype", &Self::dtype}, Field{"updates", &Self::updates}, Field{"result", &Self::result},
                      Field{"index", &Self::index}, Field{"rows", &Self::rows},       Field{"columns", &Self::columns}};
  }
};

/// A buffer with `rows` rows in each block.
struct RowsPlace {
  int64_t buffer = 0;
  DimExpr rows;

  bool operator==(const RowsPlace&) const = default;
  template <typename Self = RowsPlace>
  static constexpr auto fields() {
    return std::tuple{Field{"buffer", &Self::buffer}, Field{"rows", &Self::rows}};
  }
};

/// Tensors that differ in dim `dim` only, as `outer` blocks of rows of `inner` elements.
struct RowBlocks {
  int64_t element_size = 4;
  int64_t dim = 0;
  DimExpr outer, inner;

  bool operator==(const RowBlocks&) const = default;
  template <typename Self = RowBlocks>
  static constexpr auto fields() {
    return std::tuple{Field{"element_size", &Self::element_size}, Field{"dim", &Self::dim},
                      Field{"outer", &Self::outer}, Field{"inner", &Self::inner}};
  }
};

/// result = the rows of each block from `start` on, an i64. This call and the next fail on a start behind which there
/// are too few rows.
struct DynamicSliceCall {
  static constexpr const char* kName = "dynamic_slice";
  RowBlocks blocks;
  RowsPlace source, result;
  int64_t start = 0;

  bool operator==(const DynamicSliceCall&) const = default;
  template <typename Self = DynamicSliceCall>
  static constexpr auto fields() {
    return std::tuple{Field{"blocks", &Self::blocks}, Field{"source", &Self::source}, Field{"result", &Self::result},
                      Field{"start", &Self::start}};
  }
};

/// result = the source, except that in each block the rows from `start` on are those of the update. The source may lie
/// in the result's memory; then its other rows are not copied.
struct DynamicUpdateCall {
  static constexpr const char* kName = "dynamic_update";
  RowBlocks blocks;
  RowsPlace source, update;
  int64_t result = 0, start = 0;

  bool operator==(const DynamicUpdateCall&) const = default;
  template <typename Self = DynamicUpdateCall>
  static constexpr auto fields() {
    return std::tuple{Field{"blocks", &Self::blocks}, Field{"source", &Self::source}, Field{"update", &Self::update},
                      Field{"result", &Self::result}, Field{"start", &Self::start}};
  }
};

/// No kernel of the runtime but a function that the plan's loader supplies for this stage (StageCode::callbacks), such
/// as PyTorch's operator or the interpreter.
struct CallbackCall {
  static constexpr const char* kName = "callback";

  bool operator==(const CallbackCall&) const = default;
  static constexpr auto fields() { return std::tuple{}; }
};

using KernelCall = std::variant<CallbackCall, PackCall, OuterCall, ColumnSumCall, ProductCall, FoldCall, IotaCall,
                                SizeCall, DivideCall, CopyCall, PadCall, GatherCall, ScatterCall, ScatterAddCall,
                                DynamicSliceCall, DynamicUpdateCall>;

/// The context of a call: the buffers, and the member that runs the call.
struct CallContext {
  void* const* buffers;
  const std::vector<int64_t>& symbols;  ///< values
  int64_t thread, threads;

  /// This member's share of `count` things, dealt out in blocks of `block`.
  Share share(int64_t count, int64_t block = 1) const { return share_of(count, block, thread, threads); }
  /// The address `bytes` behind the buffer's start. Null where a tensor without elements has no memory.
  char* at(int64_t buffer, int64_t bytes = 0) const {
    char* first = static_cast<char*>(buffers[buffer]);
    return first ? first + bytes : nullptr;
  }
};

/// Returns false when the inputs are bad (an index out of range), after writing the message to `error`. Only one thread
/// at a time writes it.
using CallFunction = std::function<bool(const CallContext& context, std::string& error)>;

/// Makes the member's share of the call, as a CallFunction does. Allocates no memory but scratch, once a thread
/// (std::bad_alloc). Internal error for a CallbackCall.
bool run_kernel(const KernelCall& call, const CallContext& context, std::string& error);

}  // namespace weft::runtime
