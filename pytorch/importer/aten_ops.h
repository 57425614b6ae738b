#pragma once

#include <string_view>
#include <vector>

#include "importer/region.h"
#include "ir/builder.h"

namespace weft::importer {

/// One ATen call to be expressed in the IR.
struct AtenCall {
  ir::Builder& builder;
  std::string_view op;                     ///< with its overload, "aten.add.Tensor"; or "weft.stop_gradient"
  const std::vector<Argument>& arguments;  ///< all arguments, in the schema's order
  const ir::Type& result;                  ///< as PyTorch's meta kernel gave it

  /// Argument i, a tensor, as the op requires; user's error if it is something else.
  ir::ValueId tensor(size_t i) const;
  int64_t integer(size_t i) const;
  /// An integer, which may depend on sizes.
  ir::Dim size_argument(size_t i) const;
  std::vector<ir::Dim> size_arguments(size_t i) const;
  double number(size_t i) const;
  bool flag(size_t i) const;
  const std::vector<int64_t>& integers(size_t i) const;
  const std::vector<Value>& tensors(size_t i) const;
  /// A list of tensors, of which some are None. It may be shorter than the number of dims.
  std::vector<std::optional<Value>> optional_tensors(size_t i) const;
  std::string_view word(size_t i) const;
  bool is_tensor(size_t i) const;
  bool is_none(size_t i) const;
  /// Whether argument i is a size, or a sum or quotient of sizes, that the call knows.
  bool is_size(size_t i) const;
  bool is_negative_size(size_t i) const;
  bool is_unknown(size_t i) const;
  /// Argument i, a place along a dim of this size, counted from the front. It may lie outside of the dim.
  ir::Dim place(size_t i, const ir::Dim& size) const;
  /// A dim argument, counted from the front of `rank` dims.
  int64_t dim(size_t i, int64_t rank) const;

  const ir::Type& type(ir::ValueId id) const { return builder.type(id); }
  /// The value cast to a dtype; the value itself if it has that dtype.
  ir::ValueId cast(ir::ValueId value, DType dtype) const;
  /// The value broadcast as PyTorch does: trailing dims are aligned, and size 1 repeats.
  ir::ValueId expand(ir::ValueId value, const ir::Shape& shape) const;
  ir::ValueId reshape(ir::ValueId value, const ir::Shape& shape) const;
  /// Argument i, a tensor, a number or a size, in the result's shape and in `dtype`.
  ir::ValueId operand(size_t i, DType dtype) const;
  ir::ValueId operand(size_t i) const { return operand(i, result.dtype); }
  ir::ValueId constant(double value) const { return builder.constant(value, result); }
  /// A constant of the type of `like`.
  ir::ValueId constant(double value, ir::ValueId like) const { return builder.constant(value, ir::Type(type(like))); }
  ir::ValueId unary(ir::OpCode code, ir::ValueId x) const { return builder.unary(code, x); }
  ir::ValueId binary(ir::OpCode code, ir::ValueId a, ir::ValueId b) const { return builder.binary(code, a, b); }
  /// The value of a dim at the call, as a scalar.
  ir::ValueId size(const ir::Dim& dim, DType dtype) const;
  /// 0, 1, ... along `dim` of `shape`.
  ir::ValueId iota(const ir::Shape& shape, size_t dim, DType dtype) const;
};

using Handler = ir::ValueId (*)(const AtenCall&);

/// Whether there is a handler for the op (with its overload). The handler may still refuse the arguments.
bool knows_aten(std::string_view op);

/// Emits the call; its value is of type call.result. User's error, naming op and reason, if the IR can't express it.
ir::ValueId import_aten(const AtenCall& call);

}  // namespace weft::importer
