#include "device/graph/record.h"

#include <algorithm>

#include "device/graph/forms.h"
#include "device/run/run.h"
#include "device/run/watched_runs.h"

namespace weft::device {

using c10::IValue;
using record::ResultShape;

NodeRef record(FormRef form, Operands operands) {
  cut_if_long();
  auto node = c10::make_intrusive<Node>();
  node->form = std::move(form);
  node->operands = std::move(operands);
  connect(*node);
  note_operation(*node);
  return node;
}

NodeRef record(const Operator& op, std::vector<IValue> arguments, Operands operands, Results results) {
  FormRef form = form_of(op, std::move(arguments), operands, std::move(results));
  return record(std::move(form), std::move(operands));
}

std::vector<FormRef> forms_between(const ValueRef& from, const ValueRef& to) {
  std::vector<FormRef> forms;
  for (const Value* value = to.get(); value != from.get(); value = value->maker->operands[0].get())
    forms.push_back(value->maker->form);
  std::ranges::reverse(forms);
  return forms;
}

ValueRef record_forms(const std::vector<FormRef>& forms, ValueRef value) {
  for (const FormRef& form : forms) {
    const ResultShape& shape = form->results->front();
    const NodeRef node = record(form, {std::move(value)});
    value = result_of(node, 0, shape.dtype, shape.sizes);
  }
  return value;
}

namespace {

/// One of PyTorch's operations, looked up once.
struct Known {
  const char *name, *overload;
  std::atomic<const Operator*> found{nullptr};

  const Operator& get() {
    const Operator* op = found.load(std::memory_order_acquire);
    if (op == nullptr) found.store(op = &operator_named(name, overload), std::memory_order_release);
    return *op;
  }
};

Known zeros{"aten::zeros", ""}, reshape{"aten::reshape", ""}, permute{"aten::permute", ""}, expand{"aten::expand", ""},
    to_copy{"aten::_to_copy", ""}, slice{"aten::slice", "Tensor"}, select{"aten::select", "int"},
    slice_scatter{"aten::slice_scatter", ""}, select_scatter{"aten::select_scatter", ""},
    index{"aten::index", "Tensor"}, index_put{"aten::index_put", ""};

Results one_result(at::ScalarType dtype, at::IntArrayRef sizes) {
  auto results = std::make_shared<std::vector<ResultShape>>(1);
  (*results)[0].dtype = dtype;
  (*results)[0].sizes.assign(sizes.begin(), sizes.end());
  return results;
}

ValueRef one(Known& op, std::vector<IValue> arguments, Operands operands, at::ScalarType dtype, at::IntArrayRef sizes) {
  const NodeRef node = record(op.get(), std::move(arguments), std::move(operands), one_result(dtype, sizes));
  return result_of(node, 0, dtype, sizes);
}

IValue list_of_first_operand(size_t operand) { return IValue(std::vector<int64_t>{static_cast<int64_t>(operand)}); }

}  // namespace

ValueRef record_zeros(at::ScalarType dtype, at::IntArrayRef sizes) {
  return one(zeros, {sizes.vec(), static_cast<int64_t>(dtype), IValue(), c10::Device(c10::kCPU), IValue()}, {}, dtype,
             sizes);
}

ValueRef record_reshape(const ValueRef& value, at::IntArrayRef sizes) {
  if (at::IntArrayRef(value->sizes) == sizes) return value;
  return one(reshape, {0, sizes.vec()}, {value}, value->dtype, sizes);
}

ValueRef record_permute(const ValueRef& value, at::IntArrayRef order) {
  Sizes sizes;
  bool is_same = true;
  for (size_t i = 0; i < order.size(); ++i) {
    sizes.push_back(value->sizes[static_cast<size_t>(order[i])]);
    is_same &= order[i] == static_cast<int64_t>(i);
  }
  return is_same ? value : one(permute, {0, order.vec()}, {value}, value->dtype, sizes);
}

ValueRef record_expand(const ValueRef& value, at::IntArrayRef sizes) {
  if (at::IntArrayRef(value->sizes) == sizes) return value;
  return one(expand, {0, sizes.vec(), false}, {value}, value->dtype, sizes);
}

ValueRef record_cast(const ValueRef& value, at::ScalarType dtype) {
  if (value->dtype == dtype) return value;
  return one(to_copy, {0, static_cast<int64_t>(dtype), IValue(), IValue(), IValue(), false, IValue()}, {value}, dtype,
             value->sizes);
}

ValueRef record_slice(const ValueRef& value, int64_t dim, int64_t start, int64_t length, int64_t step) {
  Sizes sizes = value->sizes;
  int64_t& size = sizes[static_cast<size_t>(dim)];
  if (start == 0 && length == size && step == 1) return value;
  size = length;
  const int64_t end = start + (length - 1) * step + 1;
  return one(slice, {0, dim, start, end, step}, {value}, value->dtype, sizes);
}

ValueRef record_select(const ValueRef& value, int64_t dim, int64_t at) {
  Sizes sizes = value->sizes;
  sizes.erase(sizes.begin() + dim);
  return one(select, {0, dim, at}, {value}, value->dtype, sizes);
}

ValueRef record_slice_scatter(const ValueRef& value, const ValueRef& part, int64_t dim, int64_t start, int64_t length,
                              int64_t step) {
  if (start == 0 && length == value->sizes[static_cast<size_t>(dim)] && step == 1) return part;
  const int64_t end = start + (length - 1) * step + 1;
  return one(slice_scatter, {0, 1, dim, start, end, step}, {value, part}, value->dtype, value->sizes);
}

ValueRef record_select_scatter(const ValueRef& value, const ValueRef& part, int64_t dim, int64_t at) {
  return one(select_scatter, {0, 1, dim, at}, {value, part}, value->dtype, value->sizes);
}

ValueRef record_gather(const ValueRef& value, const ValueRef& places) {
  return one(index, {0, list_of_first_operand(1)}, {value, places}, value->dtype, places->sizes);
}

ValueRef record_scatter(const ValueRef& value, const ValueRef& places, const ValueRef& elements) {
  return one(index_put, {0, list_of_first_operand(1), 2, false}, {value, places, elements}, value->dtype, value->sizes);
}

ValueRef record_unary(const char* name, const ValueRef& value) {
  const NodeRef node = record(operator_named(name, ""), {0}, {value}, one_result(value->dtype, value->sizes));
  return result_of(node, 0, value->dtype, value->sizes);
}

}  // namespace weft::device
