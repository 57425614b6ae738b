#include "stablehlo/emitter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace weft::stablehlo {
namespace {

std::string_view element_name(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "i1";
    case DType::kU8:
      return "ui8";
    default:
      return name_of(dtype);
  }
}

/// The comparison type for a dtype.
std::string_view kind_of(DType dtype) {
  if (is_floating(dtype)) return "FLOAT";
  return dtype == DType::kBool || dtype == DType::kU8 ? "UNSIGNED" : "SIGNED";
}

/// The bits of infinity, which has no decimal form.
std::string_view infinity_bits(DType dtype, bool negative) {
  switch (dtype) {
    case DType::kF16:
      return negative ? "0xFC00" : "0x7C00";
    case DType::kBF16:
      return negative ? "0xFF80" : "0x7F80";
    case DType::kF32:
      return negative ? "0xFF800000" : "0x7F800000";
    default:
      return negative ? "0xFFF0000000000000" : "0x7FF0000000000000";
  }
}

std::string_view nan_bits(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "0x7E00";
    case DType::kBF16:
      return "0x7FC0";
    case DType::kF32:
      return "0x7FC00000";
    default:
      return "0x7FF8000000000000";
  }
}

/// Numbers from here on are infinite when they are rounded to the dtype.
double overflow_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65520;
    case DType::kBF16:
      return static_cast<double>(std::bit_cast<float>(uint32_t{0x7f7f8000}));
    default:
      return std::numeric_limits<double>::infinity();
  }
}

std::string literal(double value, DType dtype) {
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  if (!is_floating(dtype)) return std::to_string(static_cast<int64_t>(value));
  if (dtype != DType::kF64) value = static_cast<double>(static_cast<float>(value));
  if (std::isnan(value)) return std::string(nan_bits(dtype));
  if (std::abs(value) >= overflow_of(dtype)) return std::string(infinity_bits(dtype, value < 0));
  std::string text = fmt::format("{}", value);
  // MLIR takes no 1e-05: a number has a point before its exponent.
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

}  // namespace

DType compute_type(DType dtype) { return is_floating(dtype) && size_of(dtype) == 2 ? DType::kF32 : dtype; }

std::string to_string(const TensorType& type) {
  std::string text = "tensor<";
  for (int64_t size : type.sizes) text += std::to_string(size) + "x";
  return text + std::string(element_name(type.dtype)) + ">";
}

std::string list_of(const Sizes& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

std::string names_of(std::span<const Tensor> tensors) {
  std::string text;
  for (const Tensor& tensor : tensors) text += (text.empty() ? "" : ", ") + tensor.name;
  return text;
}

std::string types_of(std::span<const Tensor> tensors) {
  std::string text;
  for (const Tensor& tensor : tensors) text += (text.empty() ? "" : ", ") + to_string(tensor.type);
  return text;
}

void Emitter::line(std::string_view text) {
  text_.append(static_cast<size_t>(depth_) * 2, ' ');
  text_ += text;
  text_ += '\n';
}

std::string Emitter::new_name() { return fmt::format("%{}", next_++); }

Tensor Emitter::append(std::string_view text, std::string_view signature, TensorType type) {
  Tensor result{new_name(), std::move(type)};
  line(fmt::format("{} = {} : {}", result.name, text, signature));
  return result;
}

Tensor Emitter::unary(std::string_view op, const Tensor& a) {
  return append(fmt::format("stablehlo.{} {}", op, a.name), to_string(a.type), a.type);
}

Tensor Emitter::binary(std::string_view op, const Tensor& a, const Tensor& b) {
  return append(fmt::format("stablehlo.{} {}, {}", op, a.name, b.name), to_string(a.type), a.type);
}

Tensor Emitter::chlo(std::string_view op, const Tensor& a) {
  const std::string type = to_string(a.type);
  return append(fmt::format("chlo.{} {}", op, a.name), fmt::format("{} -> {}", type, type), a.type);
}

Tensor Emitter::compare(std::string_view direction, const Tensor& a, const Tensor& b) {
  const TensorType type{DType::kBool, a.type.sizes};
  return append(fmt::format("stablehlo.compare {}, {}, {}, {}", direction, a.name, b.name, kind_of(a.type.dtype)),
                fmt::format("({}, {}) -> {}", to_string(a.type), to_string(b.type), to_string(type)), type);
}

Tensor Emitter::select(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return append(fmt::format("stablehlo.select {}, {}, {}", condition.name, a.name, b.name),
                fmt::format("{}, {}", to_string(condition.type), to_string(a.type)), a.type);
}

Tensor Emitter::convert(const Tensor& a, DType dtype) {
  if (a.type.dtype == dtype) return a;
  const TensorType type{dtype, a.type.sizes};
  return append(fmt::format("stablehlo.convert {}", a.name),
                fmt::format("({}) -> {}", to_string(a.type), to_string(type)), type);
}

Tensor Emitter::constant(double value, const TensorType& type) {
  return append(fmt::format("stablehlo.constant dense<{}>", literal(value, type.dtype)), to_string(type), type);
}

Tensor Emitter::least(const TensorType& type) {
  if (is_floating(type.dtype)) return constant(-std::numeric_limits<double>::infinity(), type);
  const bool has_sign = type.dtype != DType::kU8 && type.dtype != DType::kBool;
  return constant(has_sign ? -std::ldexp(1, static_cast<int>(8 * size_of(type.dtype)) - 1) : 0, type);
}

Tensor Emitter::greatest(const TensorType& type) {
  if (is_floating(type.dtype)) return constant(std::numeric_limits<double>::infinity(), type);
  // The greatest integer has the inverted bits of the least. For types without a sign it is written as a number.
  if (type.dtype == DType::kU8) return constant(255, type);
  if (type.dtype == DType::kBool) return constant(1, type);
  return unary("not", least(type));
}

Tensor Emitter::iota(const TensorType& type, int64_t dim) {
  return append(fmt::format("stablehlo.iota dim = {}", dim), to_string(type), type);
}

Tensor Emitter::broadcast(const Tensor& a, Sizes sizes, const Sizes& dims) {
  const TensorType type{a.type.dtype, std::move(sizes)};
  return append(fmt::format("stablehlo.broadcast_in_dim {}, dims = {}", a.name, list_of(dims)),
                fmt::format("({}) -> {}", to_string(a.type), to_string(type)), type);
}

Tensor Emitter::reshape(const Tensor& a, Sizes sizes) {
  const TensorType type{a.type.dtype, std::move(sizes)};
  if (type == a.type) return a;
  return append(fmt::format("stablehlo.reshape {}", a.name),
                fmt::format("({}) -> {}", to_string(a.type), to_string(type)), type);
}

Tensor Emitter::transpose(const Tensor& a, const Sizes& perm) {
  TensorType type{a.type.dtype, {}};
  for (int64_t dim : perm) type.sizes.push_back(a.type.sizes[static_cast<size_t>(dim)]);
  return append(fmt::format("stablehlo.transpose {}, dims = {}", a.name, list_of(perm)),
                fmt::format("({}) -> {}", to_string(a.type), to_string(type)), type);
}

Tensor Emitter::slice(const Tensor& a, int64_t dim, int64_t start, int64_t limit) {
  TensorType type = a.type;
  type.sizes[static_cast<size_t>(dim)] = limit - start;
  std::string ranges;
  for (int64_t i = 0; i < a.type.rank(); ++i)
    ranges += fmt::format("{}{}:{}", i ? ", " : "", i == dim ? start : 0,
                          i == dim ? limit : a.type.sizes[static_cast<size_t>(i)]);
  return append(fmt::format("stablehlo.slice {} [{}]", a.name, ranges),
                fmt::format("({}) -> {}", to_string(a.type), to_string(type)), type);
}

Tensor Emitter::pad(const Tensor& a, int64_t dim, int64_t low, int64_t high) {
  const Tensor zero = constant(0, {a.type.dtype, {}});
  TensorType type = a.type;
  type.sizes[static_cast<size_t>(dim)] += low + high;
  const Sizes none(a.type.sizes.size());
  Sizes before = none, after = none;
  before[static_cast<size_t>(dim)] = low;
  after[static_cast<size_t>(dim)] = high;
  return append(fmt::format("stablehlo.pad {}, {}, low = {}, high = {}, interior = {}", a.name, zero.name,
                            list_of(before), list_of(after), list_of(none)),
                fmt::format("({}, {}) -> {}", to_string(a.type), to_string(zero.type), to_string(type)), type);
}

Tensor Emitter::concatenate(std::span<const Tensor> parts, int64_t dim) {
  TensorType type = parts[0].type;
  int64_t& size = type.sizes[static_cast<size_t>(dim)];
  size = 0;
  for (const Tensor& part : parts) size += part.type.sizes[static_cast<size_t>(dim)];
  return append(fmt::format("stablehlo.concatenate {}, dim = {}", names_of(parts), dim),
                fmt::format("({}) -> {}", types_of(parts), to_string(type)), type);
}

Tensor Emitter::reverse(const Tensor& a, int64_t dim) {
  return append(fmt::format("stablehlo.reverse {}, dims = [{}]", a.name, dim), to_string(a.type), a.type);
}

std::vector<Tensor> Emitter::starts_of(const Tensor& start, int64_t dim, int64_t rank) {
  std::vector<Tensor> starts(static_cast<size_t>(rank), start);
  if (rank == 1) return starts;
  const Tensor zero = like(0, start);
  for (int64_t i = 0; i < rank; ++i)
    if (i != dim) starts[static_cast<size_t>(i)] = zero;
  return starts;
}

Tensor Emitter::dynamic_slice(const Tensor& a, const Tensor& start, int64_t dim, int64_t size) {
  const std::vector<Tensor> starts = starts_of(start, dim, a.type.rank());
  TensorType type = a.type;
  type.sizes[static_cast<size_t>(dim)] = size;
  return append(
      fmt::format("stablehlo.dynamic_slice {}, {}, sizes = {}", a.name, names_of(starts), list_of(type.sizes)),
      fmt::format("({}, {}) -> {}", to_string(a.type), types_of(starts), to_string(type)), type);
}

Tensor Emitter::dynamic_update(const Tensor& a, const Tensor& update, const Tensor& start, int64_t dim) {
  const std::vector<Tensor> starts = starts_of(start, dim, a.type.rank());
  return append(
      fmt::format("stablehlo.dynamic_update_slice {}, {}, {}", a.name, update.name, names_of(starts)),
      fmt::format("({}, {}, {}) -> {}", to_string(a.type), to_string(update.type), types_of(starts), to_string(a.type)),
      a.type);
}

Tensor Emitter::gather(const Tensor& table, const Tensor& index) {
  TensorType type{table.type.dtype, index.type.sizes};
  Sizes slice = table.type.sizes, offsets;
  slice[0] = 1;
  for (int64_t i = 1; i < table.type.rank(); ++i) {
    offsets.push_back(type.rank());
    type.sizes.push_back(table.type.sizes[static_cast<size_t>(i)]);
  }
  return append(
      fmt::format("\"stablehlo.gather\"({}, {}) <{{dimension_numbers = #stablehlo.gather<offset_dims = {}, "
                  "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = {}>, indices_are_sorted = "
                  "false, slice_sizes = array<i64: {}>}}>",
                  table.name, index.name, list_of(offsets), index.type.rank(), fmt::join(slice, ", ")),
      fmt::format("({}, {}) -> {}", to_string(table.type), to_string(index.type), to_string(type)), type);
}

Tensor Emitter::scatter(std::string_view op, const Tensor& table, const Tensor& index, const Tensor& updates) {
  Sizes window;
  for (int64_t i = 1; i < table.type.rank(); ++i) window.push_back(index.type.rank() + i - 1);
  const std::string scalar = to_string(TensorType{table.type.dtype, {}});
  Tensor result{new_name(), table.type};
  line(fmt::format(
      "{} = \"stablehlo.scatter\"({}, {}, {}) <{{indices_are_sorted = false, scatter_dimension_numbers = "
      "#stablehlo.scatter<update_window_dims = {}, inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
      "index_vector_dim = {}>, unique_indices = false}}> ({{",
      result.name, table.name, index.name, updates.name, list_of(window), index.type.rank()));
  line(fmt::format("^bb0(%old: {0}, %new: {0}):", scalar));
  line(fmt::format("  %joined = stablehlo.{} %old, %new : {}", op, scalar));
  line(fmt::format("  stablehlo.return %joined : {}", scalar));
  line(fmt::format("}}) : ({}, {}, {}) -> {}", to_string(table.type), to_string(index.type), to_string(updates.type),
                   to_string(table.type)));
  return result;
}

std::pair<Tensor, Tensor> Emitter::sort(const Tensor& a, int64_t dim, bool is_descending) {
  const TensorType place_type{DType::kI64, a.type.sizes};
  const Tensor places = iota(place_type, dim);
  const std::string scalar = to_string(TensorType{a.type.dtype, {}}), place = to_string(TensorType{DType::kI64, {}});
  const std::string truth = to_string(TensorType{DType::kBool, {}}), name = new_name();
  const auto compare = [&](std::string_view result, std::string_view direction, std::string_view x,
                           std::string_view y) {
    line(fmt::format("  {} = stablehlo.compare {}, {}, {} : ({}, {}) -> {}", result, direction, x, y, scalar, scalar,
                     truth));
  };
  const auto both = [&](std::string_view result, std::string_view op, std::string_view x, std::string_view y) {
    line(fmt::format("  {} = stablehlo.{} {}, {} : {}", result, op, x, y, truth));
  };
  line(fmt::format("{}:2 = \"stablehlo.sort\"({}, {}) <{{dimension = {} : i64, is_stable = true}}> ({{", name, a.name,
                   places.name, dim));
  line(fmt::format("^bb0(%left: {0}, %right: {0}, %left_place: {1}, %right_place: {1}):", scalar, place));
  compare("%before", is_descending ? "GT" : "LT", "%left", "%right");
  if (is_floating(a.type.dtype)) {
    const std::string_view greater = is_descending ? "%left" : "%right", less = is_descending ? "%right" : "%left";
    compare("%is_nan", "NE", greater, greater);
    compare("%is_number", "EQ", less, less);
    both("%beyond", "and", "%is_nan", "%is_number");
    both("%first", "or", "%before", "%beyond");
  }
  line(fmt::format("  stablehlo.return {} : {}", is_floating(a.type.dtype) ? "%first" : "%before", truth));
  line(fmt::format("}}) : ({0}, {1}) -> ({0}, {1})", to_string(a.type), to_string(place_type)));
  return {{name + "#0", a.type}, {name + "#1", place_type}};
}

Tensor Emitter::reduce(std::string_view op, const Tensor& a, const Tensor& init, const Sizes& dims) {
  TensorType type{a.type.dtype, {}};
  for (int64_t i = 0; i < a.type.rank(); ++i)
    if (std::ranges::find(dims, i) == dims.end()) type.sizes.push_back(a.type.sizes[static_cast<size_t>(i)]);
  return append(fmt::format("stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = {}", a.name,
                            init.name, op, list_of(dims)),
                fmt::format("({}, {}) -> {}", to_string(a.type), to_string(init.type), to_string(type)), type);
}

Tensor Emitter::dot(const Tensor& a, const Tensor& b, const ProductDims& dims, DType result) {
  TensorType type{result, {}};
  for (int64_t dim : dims.batch_a) type.sizes.push_back(a.type.sizes[static_cast<size_t>(dim)]);
  auto add_free = [&](const Tensor& operand, const Sizes& batch, const Sizes& summed) {
    for (int64_t i = 0; i < operand.type.rank(); ++i)
      if (std::ranges::find(batch, i) == batch.end() && std::ranges::find(summed, i) == summed.end())
        type.sizes.push_back(operand.type.sizes[static_cast<size_t>(i)]);
  };
  add_free(a, dims.batch_a, dims.summed_a);
  add_free(b, dims.batch_b, dims.summed_b);
  const std::string batch =
      dims.batch_a.empty() ? ""
                           : fmt::format("batching_dims = {} x {}, ", list_of(dims.batch_a), list_of(dims.batch_b));
  // Without a precision XLA's devices may compute products of f32 in bf16 or tf32.
  return append(
      fmt::format("stablehlo.dot_general {}, {}, {}contracting_dims = {} x {}, precision = [HIGHEST, HIGHEST]", a.name,
                  b.name, batch, list_of(dims.summed_a), list_of(dims.summed_b)),
      fmt::format("({}, {}) -> {}", to_string(a.type), to_string(b.type), to_string(type)), type);
}

}  // namespace weft::stablehlo
