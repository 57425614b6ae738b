#pragma once

#include "device/graph/graph.h"
#include "device/kernels/operators.h"

namespace weft::device {

/// Records an operation with results of these types. `arguments` are in a Node's form.
NodeRef record(const Operator& op, std::vector<c10::IValue> arguments, c10::SmallVector<ValueRef, 3> operands,
               Results results);

/// An operation of one operand and one result, to be recorded again for other values of the operand's type.
struct UnaryCall {
  const Operator* op;
  Arguments arguments;
  Results results;
};
/// The operations that lead from `from` to `to`, in order. Each reads the result of the one before.
std::vector<UnaryCall> calls_between(const ValueRef& from, const ValueRef& to);
/// The last result of the calls, of which each takes the result of the one before; `value` if there are none.
ValueRef record_calls(const std::vector<UnaryCall>& calls, ValueRef value);

// ---- operations on values, as in PyTorch, but with the sizes of results given by the caller

ValueRef record_zeros(at::ScalarType dtype, at::IntArrayRef sizes);
ValueRef record_reshape(const ValueRef& value, at::IntArrayRef sizes);
ValueRef record_permute(const ValueRef& value, at::IntArrayRef order);
ValueRef record_expand(const ValueRef& value, at::IntArrayRef sizes);
ValueRef record_cast(const ValueRef& value, at::ScalarType dtype);
/// `length` elements along a dim, or one element without the dim.
ValueRef record_slice(const ValueRef& value, int64_t dim, int64_t start, int64_t length, int64_t step);
ValueRef record_select(const ValueRef& value, int64_t dim, int64_t index);
/// The value with the part that record_slice() or record_select() gives replaced.
ValueRef record_slice_scatter(const ValueRef& value, const ValueRef& part, int64_t dim, int64_t start, int64_t length,
                              int64_t step);
ValueRef record_select_scatter(const ValueRef& value, const ValueRef& part, int64_t dim, int64_t index);
/// The elements of a flat value at `places`, and the value with these elements replaced.
ValueRef record_gather(const ValueRef& value, const ValueRef& places);
ValueRef record_scatter(const ValueRef& value, const ValueRef& places, const ValueRef& elements);
/// The result of an operation of one argument (conj_physical).
ValueRef record_unary(const char* name, const ValueRef& value);

}  // namespace weft::device
