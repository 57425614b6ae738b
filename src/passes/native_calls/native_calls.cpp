#include "passes/native_calls/native_calls.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "ir/text/call_text.h"
#include "passes/native_calls/windows.h"
#include "passes/rewrite.h"

namespace weft::passes {

using ir::Builder;
using ir::CallText;
using ir::Op;
using ir::OpCode;
using ir::Shape;
using ir::Type;
using ir::ValueId;
using Sizes = CallText::Sizes;

namespace {

/// The value from `low` elements before a dim's beginning on, as far as `count` windows reach; `fill` where it has
/// none.
ValueId as_far_as(Builder& builder, ValueId value, size_t dim, const Window& window, int64_t low, int64_t count,
                  double fill) {
  const int64_t size = builder.type(value).shape[dim].constant();
  const int64_t high = (count - 1) * window.stride + window.reach() + 1 - low - size;
  std::vector<ValueId> parts;
  const auto side = [&](int64_t elements) {
    Type type = builder.type(value);
    type.shape[dim] = elements;
    if (elements > 0) parts.push_back(builder.constant(fill, type));
  };
  side(low);
  const int64_t first = std::max<int64_t>(-low, 0), last = size + std::min<int64_t>(high, 0);
  const bool is_whole = first == 0 && last == size;
  parts.push_back(is_whole ? value : builder.slice(value, static_cast<int64_t>(dim), first, last));
  side(high);
  return parts.size() == 1 ? parts[0] : builder.concat(std::move(parts), static_cast<int64_t>(dim));
}

/// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
ValueId convolution(Builder& builder, const Op& op, const CallText& call) {
  const auto operand = [&](size_t i) { return op.operands[call.operand(i).value()]; };
  const Shape shape = builder.type(op.results[0]).shape;  // a copy: new values may move the program's own
  const Shape kernel = builder.type(operand(1)).shape;
  const size_t rank = shape.size();
  const bool is_transposed = call.flag(6);
  const Sizes stride = call.integers(3), padding = call.integers(4), dilation = call.integers(5);
  const int64_t channels = builder.type(operand(0)).shape[1].constant(), groups = call.integer(8);
  ValueId x = builder.transpose(operand(0), channels_last(rank));
  Windows windows;
  Sizes counts;
  for (size_t i = 0; i + 2 < rank; ++i) {
    Window window{kernel[i + 2].constant(), stride[i], 0, dilation[i]};
    int64_t low = padding[i];
    if (is_transposed) {  // of x with zeros between its elements, by the weights turned round
      x = spread_out(builder, x, i + 1, window.stride);
      window.stride = 1;
      low = window.reach() - low;
    }
    counts.push_back(shape[i + 2].constant());
    x = as_far_as(builder, x, i + 1, window, low, counts.back(), 0);
    windows.dims.push_back(window);
  }
  const ValueId weight = is_transposed ? turned_weights(builder, operand(1), groups) : operand(1);
  const ConvolutionWeights weights =
      convolution_weights(builder, weight, call.operand(2) ? operand(2) : ir::kNoValue, groups, channels);
  const ValueId y = convolve(builder, windows.taps(builder, x, Sizes(counts.size(), 0), counts), weights);
  return builder.transpose(y, channels_second(rank));
}

/// By window over a dim of `size` elements: how many it counts, of the elements and, where `padding_counts`, of the
/// padding.
Sizes counted(const Window& window, int64_t size, int64_t windows, bool padding_counts) {
  Sizes counts;
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t first = i * window.stride - window.padding;
    const int64_t last = std::min(first + window.kernel, size + window.padding);
    counts.push_back(padding_counts ? last - first : std::min(last, size) - std::max<int64_t>(first, 0));
  }
  return counts;
}

/// The numbers along a dim of `type`, as a value of that type.
ValueId along(Builder& builder, const Sizes& numbers, size_t dim, const Type& type) {
  std::vector<ValueId> parts;
  for (auto first = numbers.begin(); first != numbers.end();) {
    const auto last = std::find_if(first, numbers.end(), [&](int64_t number) { return number != *first; });
    parts.push_back(builder.constant(static_cast<double>(*first), {type.dtype, {ir::Dim(last - first)}}));
    first = last;
  }
  const ValueId all = parts.size() == 1 ? parts[0] : builder.concat(std::move(parts), 0);
  return builder.broadcast(all, type.shape, {static_cast<int64_t>(dim)});
}

/// (input, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
ValueId mean_pool(Builder& builder, const Op& op, const CallText& call) {
  const ValueId given = op.operands[call.operand(0).value()];
  const Type result = builder.type(op.results[0]);
  const Sizes kernel = call.integers(1), stride = call.integers(2), padding = call.integers(3);
  Windows windows;
  windows.first = result.shape.size() - kernel.size();
  Sizes counts;
  ValueId x = given;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const Window window{kernel[i], stride.empty() ? kernel[i] : stride[i], padding[i], 1};
    windows.dims.push_back(window);
    counts.push_back(result.shape[windows.first + i].constant());
    x = as_far_as(builder, x, windows.first + i, window, window.padding, counts.back(), 0);
  }
  ValueId sum = ir::kNoValue;
  for (ValueId tap : windows.taps(builder, x, Sizes(counts.size(), 0), counts))
    sum = sum == ir::kNoValue ? tap : builder.add(sum, tap);
  if (!call.has_none(6)) return builder.div(sum, builder.constant(static_cast<double>(call.integer(6)), result));
  for (size_t i = 0; i < kernel.size(); ++i) {
    const int64_t size = builder.type(given).shape[windows.first + i].constant();
    const Sizes each = counted(windows.dims[i], size, counts[i], call.flag(5));
    sum = builder.div(sum, along(builder, each, windows.first + i, result));
  }
  return sum;
}

bool has_known_sizes(const ir::Program& program, const Op& op) {
  const auto is_known = [&](ValueId value) {
    return std::ranges::all_of(program.type(value).shape, [](const ir::Dim& dim) { return dim.is_constant(); });
  };
  return std::ranges::all_of(op.operands, is_known) && std::ranges::all_of(op.results, is_known);
}

std::optional<ValueId> native(Builder& builder, const Op& op) {
  if (!ir::traits_of(op.code).calls_out || !has_known_sizes(builder.program(), op)) return std::nullopt;
  std::vector<Sizes> sizes;
  for (ValueId operand : op.operands) {
    sizes.emplace_back();
    for (const ir::Dim& dim : builder.type(operand).shape) sizes.back().push_back(dim.constant());
  }
  const CallText call("weft.package", op.attr<std::string>("call"), std::move(sizes));
  const bool is_convolution = call.name() == "aten.convolution.default";
  if (!is_convolution && call.name() != "aten.avg_pool2d.default" && call.name() != "aten.avg_pool3d.default")
    return std::nullopt;
  const Type type = builder.type(op.results[0]);
  if (ir::element_count(type.shape) == ir::Dim(0)) return builder.constant(0, type);
  return is_convolution ? convolution(builder, op, call) : mean_pool(builder, op, call);
}

void rewrite(ir::Program& program, ir::Block& block, Substitution& replaced) {
  std::vector<Op> ops = std::move(block.ops);
  block.ops.clear();
  Builder builder(program, block);
  for (Op& op : ops) {
    substitute(op, replaced);
    for (ir::Block& region : op.regions) rewrite(program, region, replaced);
    const size_t first = block.ops.size();
    const std::optional<ValueId> value = native(builder, op);
    if (!value) {
      block.ops.push_back(std::move(op));
      continue;
    }
    replaced.set(op.results[0], *value);
    copy_note(op, std::span(block.ops).subspan(first));
  }
  for (ValueId& result : block.results) result = replaced(result);
}

}  // namespace

void native_calls(ir::Program& program) {
  Substitution replaced;
  rewrite(program, program.body, replaced);
}

}  // namespace weft::passes
