// Shapes of operations that make, join, move and select elements, as PyTorch's kernels for the CPU give them.

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/arange_meta_dispatch.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/index_meta_dispatch.h>

#include "record/meta/shapes.h"

namespace weft::record {

namespace {

using at::Tensor;
using Type = std::optional<at::ScalarType>;
using Layout = std::optional<at::Layout>;
using Device = std::optional<at::Device>;
using Pinned = std::optional<bool>;
using Format = std::optional<at::MemoryFormat>;

// ---- tensors that are filled

Tensor filled_like(const Tensor& x, Type type, Layout layout, Device device, Pinned pinned, Format format) {
  return at::native::empty_like(x, type, layout, device, pinned, format);
}

Tensor number_like(const Tensor& x, const at::Scalar&, Type type, Layout layout, Device device, Pinned pinned,
                   Format format) {
  return filled_like(x, type, layout, device, pinned, format);
}

Tensor new_filled(const Tensor& x, at::IntArrayRef sizes, Type type, Layout, Device, Pinned) {
  return contiguous(sizes, x.options().dtype(type.value_or(x.scalar_type())));
}

Tensor new_number(const Tensor& x, at::IntArrayRef sizes, const at::Scalar&, Type type, Layout layout, Device device,
                  Pinned pinned) {
  return new_filled(x, sizes, type, layout, device, pinned);
}

at::TensorOptions options(Type type) {
  return at::TensorOptions(c10::kMeta).dtype(type.value_or(at::typeMetaToScalarType(at::get_default_dtype())));
}

Tensor filled(at::IntArrayRef sizes, Type type, Layout, Device, Pinned) { return contiguous(sizes, options(type)); }

Tensor full(at::IntArrayRef sizes, const at::Scalar& value, Type type, Layout, Device, Pinned) {
  if (!type && value.isBoolean()) type = at::kBool;
  if (!type && value.isIntegral(false)) type = at::kLong;
  if (!type && value.isComplex()) type = at::typeMetaToScalarType(at::get_default_complex_dtype());
  return contiguous(sizes, options(type));
}

Tensor scalar_tensor(const at::Scalar&, Type type, Layout, Device, Pinned) { return contiguous({}, options(type)); }

Tensor range_by(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, Type type, Layout, Device,
                Pinned) {
  const auto is_whole = [](const at::Scalar& number) { return number.isIntegral(true); };
  if (!type && is_whole(start) && is_whole(end) && is_whole(step)) type = at::kLong;
  Tensor result = contiguous({0}, options(type));
  at::meta::arange_outf(start, end, step, result);
  return result;
}

Tensor range_from(const at::Scalar& start, const at::Scalar& end, Type type, Layout layout, Device device,
                  Pinned pinned) {
  return range_by(start, end, 1, type, layout, device, pinned);
}

Tensor range(const at::Scalar& end, Type type, Layout layout, Device device, Pinned pinned) {
  return range_by(0, end, 1, type, layout, device, pinned);
}

Tensor eye_of(int64_t rows, int64_t columns, Type type, Layout, Device, Pinned) {
  TORCH_CHECK(rows >= 0 && columns >= 0, "n and m must be greater or equal to 0, got ", rows, " and ", columns);
  return contiguous({rows, columns}, options(type));
}

Tensor eye(int64_t rows, Type type, Layout layout, Device device, Pinned pinned) {
  return eye_of(rows, rows, type, layout, device, pinned);
}

Tensor with_number(const Tensor& x, const at::Scalar&) { return same(x); }

Tensor with_value(const Tensor& x, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  return same(x);
}

Tensor& fill_with_number(Tensor& x, const at::Scalar&) { return x; }

Tensor& fill_with_value(Tensor& x, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  return x;
}

Tensor& zero(Tensor& x) { return x; }

// ---- joined and moved

Tensor stack(at::TensorList tensors, int64_t dim) {
  TORCH_CHECK(!tensors.empty(), "stack expects a non-empty TensorList");
  const int64_t at = at::maybe_wrap_dim(dim, tensors[0].dim() + 1);
  std::vector<Tensor> parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(tensors[i].sizes() == tensors[0].sizes(), "stack expects each tensor to be equal size, but got ",
                tensors[0].sizes(), " at entry 0 and ", tensors[i].sizes(), " at entry ", i);
    parts.push_back(tensors[i].unsqueeze(at));
  }
  return at::meta::cat(at::ITensorListRef(parts), at);
}

Tensor flip(const Tensor& x, at::IntArrayRef dims) {
  at::dim_list_to_bitset(dims, x.dim());  // for its errors
  return same(x);
}

/// The result has the strides of the CPU's kernel, which joins two slices in one dim after the other.
Tensor roll(const Tensor& x, at::IntArrayRef shifts, at::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) return contiguous(x.sizes(), x.options());
  TORCH_CHECK(shifts.size() == dims.size(), "shifts and dimensions must align. shifts: ", shifts.size(),
              ", dims:", dims.size());
  Tensor rolled = x;
  for (int64_t dim : dims) {
    const int64_t at = at::maybe_wrap_dim(dim, x.dim());
    rolled = x.numel() == 0 ? same(rolled) : at::meta::cat(at::ITensorListRef({rolled}), at);
  }
  return rolled;
}

Tensor repeat(const Tensor& x, at::IntArrayRef counts) {
  TORCH_CHECK(static_cast<int64_t>(counts.size()) >= x.dim(),
              "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
  std::vector<int64_t> sizes(counts.begin(), counts.end());
  const size_t added = counts.size() - static_cast<size_t>(x.dim());
  for (size_t i = added; i < sizes.size(); ++i) sizes[i] *= x.size(static_cast<int64_t>(i - added));
  return contiguous(sizes, x.options());
}

// ---- selected

void check_index(const Tensor& index, const char* function) {
  TORCH_CHECK_INDEX(index.dim() <= 1, function, "(): Index is supposed to be a vector, but got dim: ", index.dim());
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt, function,
              "(): Expected dtype int32 or int64 for index");
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  check_index(index, "index_select");
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  const int64_t at = at::maybe_wrap_dim(dim, x.dim());
  if (!sizes.empty()) sizes[static_cast<size_t>(at)] = index.numel();
  return contiguous(sizes, x.options());
}

Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const at::Scalar&) {
  check_index(index, "index_fill");
  at::maybe_wrap_dim(dim, x.dim());  // for its error
  return same(x);
}

Tensor index_put(const Tensor& x, const c10::List<std::optional<Tensor>>&, const Tensor&, bool) { return same(x); }

/// The result has the strides of x, even where they leave gaps, as with PyTorch's slice_scatter and select_scatter.
Tensor scattered(const Tensor& x, const Tensor& part, const Tensor& source) {
  TORCH_CHECK(part.sizes() == source.sizes(),
              "expected src to have a size equal to the slice of self. src size = ", source.sizes(),
              ", slice size = ", part.sizes());
  return at::empty_strided(x.sizes(), x.strides(), x.options());
}

Tensor slice_scatter(const Tensor& x, const Tensor& source, int64_t dim, std::optional<int64_t> start,
                     std::optional<int64_t> end, int64_t step) {
  return scattered(x, x.slice(dim, start, end, step), source);
}

Tensor select_scatter(const Tensor& x, const Tensor& source, int64_t dim, int64_t index) {
  return scattered(x, x.select(dim, index), source);
}

}  // namespace

void add_movement(KernelTable& table) {
  for (const char* name : {"zeros_like", "ones_like", "rand_like", "randn_like"}) table.add(name, "", filled_like);
  table.add("full_like", "", number_like);
  for (const char* name : {"new_zeros", "new_ones", "new_empty"}) table.add(name, "", new_filled);
  table.add("new_full", "", new_number);
  for (const char* name : {"zeros", "ones"}) table.add(name, "", filled);
  table.add("full", "", full);
  table.add("scalar_tensor", "", scalar_tensor);
  table.add("eye", "", eye);
  table.add("eye", "m", eye_of);
  table.add("arange", "", range);
  table.add("arange", "start", range_from);
  table.add("arange", "start_step", range_by);
  table.add("fill", "Scalar", with_number);
  table.add("fill", "Tensor", with_value);
  table.add("fill_", "Scalar", fill_with_number);
  table.add("fill_", "Tensor", fill_with_value);
  table.add("zero", "", same);
  table.add("zero_", "", zero);
  table.add("stack", "", stack);
  table.add("flip", "", flip);
  table.add("roll", "", roll);
  table.add("repeat", "", repeat);
  table.add<Tensor(const Tensor&, const c10::List<std::optional<Tensor>>&)>("index", "Tensor", at::meta::index);
  table.add("index_select", "", index_select);
  table.add("index_fill", "int_Scalar", index_fill);
  table.add("index_put", "", index_put);
  table.add("slice_scatter", "", slice_scatter);
  table.add("select_scatter", "", select_scatter);
}

}  // namespace weft::record
