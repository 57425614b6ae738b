#include "engine/movement_calls.h"

#include <algorithm>
#include <cstring>

#include "runtime/movement.h"
#include "runtime/share.h"

namespace weft::engine {
namespace {

using ir::Op;
using ir::OpCode;
using ir::ValueId;
using runtime::CallContext;
using runtime::CallFunction;
using runtime::CopyDim;
using runtime::Share;

// A call may run in every step of a loop, so nothing below allocates.
using Sizes = InlineVector<int64_t, ir::kMaxRank>;
using CopyDims = InlineVector<CopyDim, ir::kMaxRank>;

Share share_of(int64_t count, const CallContext& context) {
  return runtime::share_of(count, 1, context.thread, context.threads);
}

/// A value in a plan's buffer.
struct Place {
  int64_t buffer;
  std::vector<runtime::DimExpr> shape;
  int64_t element_size;
  DType dtype;

  Sizes sizes(const CallContext& context) const {
    Sizes sizes;
    for (const auto& dim : shape) sizes.push_back(dim.evaluate(context.symbols));
    return sizes;
  }
  char* data(const CallContext& context) const { return static_cast<char*>(context.buffers[buffer]); }
};

Place place_of(const codegen::Schedule& schedule, ValueId value) {
  const ir::Type& type = schedule.program->type(value);
  Place place{schedule.buffer.at(value), {}, size_of(type.dtype), type.dtype};
  for (const ir::Dim& dim : type.shape) place.shape.push_back(schedule.expression(dim));
  return place;
}

bool has_elements(const Sizes& sizes) { return std::ranges::find(sizes, 0) == sizes.end(); }

/// The strides of a dense tensor. Zeros if it has no elements, since the product of its other dims may overflow.
Sizes strides_of(const Sizes& sizes) {
  if (!has_elements(sizes)) return Sizes(sizes.size(), 0);
  Sizes strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

int64_t product(const Sizes& sizes, size_t first, size_t last) {
  int64_t result = 1;
  for (size_t i = first; i < last; ++i) result *= sizes[i];
  return result;
}

/// A value from element `offset` on, where a copy begins.
struct Start {
  const Place& place;
  int64_t offset;
};

void copy_share(const CopyDims& dims, Start from, Start to, const CallContext& context) {
  const int64_t size = to.place.element_size;
  runtime::StridedCopy copy(dims, size);
  Share share = share_of(copy.units(), context);
  if (share.first == share.last) return;  // a value without elements may have no memory to point into
  copy.run(from.place.data(context) + from.offset * size, to.place.data(context) + to.offset * size, share.first,
           share.last);
}

CallFunction make_transpose(const Place& from, const Place& to, std::vector<int64_t> perm) {
  return [=](const CallContext& context, std::string&) {
    runtime::StridedCopy copy = runtime::transpose_copy(from.sizes(context), perm, from.element_size);
    Share share = share_of(copy.units(), context);
    copy.run(from.data(context), to.data(context), share.first, share.last);
    return true;
  };
}

CallFunction make_reverse(const Place& from, const Place& to, size_t dim) {
  return [=](const CallContext& context, std::string&) {
    Sizes sizes = from.sizes(context), strides = strides_of(sizes);
    CopyDims dims;
    for (size_t i = 0; i < sizes.size(); ++i)
      dims.push_back({sizes[i], i == dim ? -strides[i] : strides[i], strides[i]});
    int64_t start = sizes[dim] > 0 ? (sizes[dim] - 1) * strides[dim] : 0;
    copy_share(dims, {from, start}, {to, 0}, context);
    return true;
  };
}

CallFunction make_slice(const Place& from, const Place& to, size_t dim, int64_t start) {
  return [=](const CallContext& context, std::string&) {
    Sizes sizes = to.sizes(context), source = strides_of(from.sizes(context)), strides = strides_of(sizes);
    CopyDims dims;
    for (size_t i = 0; i < sizes.size(); ++i) dims.push_back({sizes[i], source[i], strides[i]});
    copy_share(dims, {from, start * source[dim]}, {to, 0}, context);
    return true;
  };
}

CallFunction make_broadcast(const Place& from, const Place& to, std::vector<int64_t> positions) {
  return [=](const CallContext& context, std::string&) {
    Sizes sizes = to.sizes(context), source = strides_of(from.sizes(context)), strides = strides_of(sizes);
    CopyDims dims;
    for (size_t i = 0; i < sizes.size(); ++i) dims.push_back({sizes[i], 0, strides[i]});
    for (size_t i = 0; i < positions.size(); ++i) dims[static_cast<size_t>(positions[i])].source_step = source[i];
    copy_share(dims, {from, 0}, {to, 0}, context);
    return true;
  };
}

/// Pads: members share the outer rows, and each writes the zeros and copies the elements of its rows.
CallFunction make_pad(const Place& from, const Place& to, size_t dim, int64_t low) {
  return [=](const CallContext& context, std::string&) {
    Sizes source = from.sizes(context), sizes = to.sizes(context);
    if (!has_elements(sizes)) return true;
    int64_t inner = product(sizes, dim + 1, sizes.size()) * from.element_size;
    int64_t row = sizes[dim] * inner, taken = source[dim] * inner;
    Share share = share_of(product(sizes, 0, dim), context);
    for (int64_t i = share.first; i < share.last; ++i) {
      char* target = to.data(context) + i * row;
      std::memset(target, 0, static_cast<size_t>(low * inner));
      if (taken > 0) std::memcpy(target + low * inner, from.data(context) + i * taken, static_cast<size_t>(taken));
      std::memset(target + low * inner + taken, 0, static_cast<size_t>(row - low * inner - taken));
    }
    return true;
  };
}

CallFunction make_concat(std::vector<Place> parts, const Place& to, size_t dim) {
  return [=](const CallContext& context, std::string&) {
    Sizes strides = strides_of(to.sizes(context));
    int64_t start = 0;
    for (const Place& part : parts) {
      Sizes sizes = part.sizes(context), source = strides_of(sizes);
      CopyDims dims;
      for (size_t i = 0; i < sizes.size(); ++i) dims.push_back({sizes[i], source[i], strides[i]});
      copy_share(dims, {part, 0}, {to, start * strides[dim]}, context);
      start += sizes[dim];
    }
    return true;
  };
}

runtime::RowIndex index_of(const Place& index, const CallContext& context) {
  Sizes sizes = index.sizes(context);
  return {index.data(context), product(sizes, 0, sizes.size()), index.dtype == DType::kI64};
}

bool complain(std::optional<int64_t> bad, int64_t rows, std::string& error) {
  if (bad) error = fmt::format("index {} is out of bounds for dimension 0 with size {}", *bad, rows);
  return !bad;
}

CallFunction make_gather(const Place& table, const Place& index, const Place& to) {
  return [=](const CallContext& context, std::string& error) {
    Sizes sizes = table.sizes(context);
    runtime::RowIndex rows = index_of(index, context);
    Share share = share_of(rows.count, context);
    int64_t row_bytes = product(sizes, 1, sizes.size()) * table.element_size;
    return complain(
        runtime::gather_rows(table.data(context), sizes[0], row_bytes, rows, to.data(context), share.first, share.last),
        sizes[0], error);
  };
}

template <typename T>
CallFunction make_scatter(const Place& index, const Place& updates, const Place& to) {
  return [=](const CallContext& context, std::string& error) {
    Sizes sizes = to.sizes(context);
    int64_t columns = product(sizes, 1, sizes.size());
    Share rows{0, sizes[0]}, part{0, columns};
    if (columns >= 16 * context.threads)
      part = share_of(columns, context);
    else
      rows = share_of(sizes[0], context);
    auto bad = runtime::scatter_add_rows<T>(index_of(index, context), reinterpret_cast<const T*>(updates.data(context)),
                                            reinterpret_cast<T*>(to.data(context)), sizes[0], columns, rows.first,
                                            rows.last, part.first, part.last);
    return complain(bad, sizes[0], error);
  };
}

CallFunction make_replace(const Place& table, const Place& index, const Place& updates, const Place& to) {
  return [=](const CallContext& context, std::string& error) {
    Sizes sizes = to.sizes(context);
    Share rows = share_of(sizes[0], context);
    auto bad =
        runtime::scatter_rows(table.data(context), index_of(index, context), updates.data(context), to.data(context),
                              sizes[0], product(sizes, 1, sizes.size()) * to.element_size, rows.first, rows.last);
    return complain(bad, sizes[0], error);
  };
}

bool is_index(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }

}  // namespace

CallFunction make_movement(const codegen::Schedule& schedule, const Op& op) {
  for (ValueId operand : op.operands)
    if (!schedule.buffer.contains(operand)) return {};
  std::vector<Place> from;
  for (ValueId operand : op.operands) from.push_back(place_of(schedule, operand));
  Place to = place_of(schedule, op.results[0]);
  auto dim = [&] { return static_cast<size_t>(op.attr<int64_t>("dim")); };
  switch (op.code) {
    case OpCode::kTranspose:
      return make_transpose(from[0], to, op.attr<std::vector<int64_t>>("perm"));
    case OpCode::kReverse:
      return make_reverse(from[0], to, dim());
    case OpCode::kSlice:
      return make_slice(from[0], to, dim(), op.attr<int64_t>("start"));
    case OpCode::kBroadcast:
      return make_broadcast(from[0], to, op.attr<std::vector<int64_t>>("dims"));
    case OpCode::kPad:
      return make_pad(from[0], to, dim(), op.attr<int64_t>("low"));
    case OpCode::kConcat:
      return make_concat(from, to, dim());
    case OpCode::kGather:
      if (is_index(from[1].dtype)) return make_gather(from[0], from[1], to);
      return {};
    case OpCode::kScatter:
      if (is_index(from[1].dtype)) return make_replace(from[0], from[1], from[2], to);
      return {};
    case OpCode::kScatterAdd:
      if (is_index(from[0].dtype) && to.dtype == DType::kF32) return make_scatter<float>(from[0], from[1], to);
      if (is_index(from[0].dtype) && to.dtype == DType::kF64) return make_scatter<double>(from[0], from[1], to);
      return {};
    default:
      return {};
  }
}

}  // namespace weft::engine
