#pragma once

#include "device/graph/graph.h"
#include "device/kernels/operators.h"

namespace weft::device {

/// Records an operation.
NodeRef record(FormRef form, Operands operands);
/// Records an operation with results of these types. `arguments` are in a Form's order.
NodeRef record(const Operator& op, std::vector<c10::IValue> arguments, Operands operands, Results results);

/// The forms of the operations that lead from `from` to `to`, in order. Each reads the result of the one before.
std::vector<FormRef> forms_between(const ValueRef& from, const ValueRef& to);
/// The last result of such operations on another value of the same type; `value` if there are none.
ValueRef record_forms(const std::vector<FormRef>& forms, ValueRef value);

// ---- operations on values, as in PyTorch, but with the sizes of results given by the caller

ValueRef record_zeros(at::ScalarType dtype, at::IntArrayRef sizes);
ValueRef record_reshape(const ValueRef& value, at::IntArrayRef sizes);
ValueRef record_permute(const ValueRef& value, at::IntArrayRef order);
ValueRef record_expand(const ValueRef& value, at::IntArrayRef sizes);
ValueRef record_cast(const ValueRef& value, at::ScalarType dtype);
/// `length` elements along a dim, or one element without the dim.
ValueRef record_slice(const ValueRef& value, int64_t dim, int64_t start, int64_t length, int64_t step);
ValueRef record_select(const ValueRef& value, int64_t dim, int64_t index);
/// `value`, with `part` in place of what record_slice() or record_select() would return.
ValueRef record_slice_scatter(const ValueRef& value, const ValueRef& part, int64_t dim, int64_t start, int64_t length,
                              int64_t step);
ValueRef record_select_scatter(const ValueRef& value, const ValueRef& part, int64_t dim, int64_t index);
/// The elements of a flat value at `places`, and the value with these elements replaced.
ValueRef record_gather(const ValueRef& value, const ValueRef& places);
ValueRef record_scatter(const ValueRef& value, const ValueRef& places, const ValueRef& elements);
/// The result of an operation of one argument (conj_physical).
ValueRef record_unary(const char* name, const ValueRef& value);

}  // namespace weft::device
