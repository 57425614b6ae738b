// Operators of PyTorch that have a form of ops of the IR's: convolutions and pooling over time.
#include <algorithm>
#include <limits>
#include <numeric>

#include "ir/text/call_text.h"
#include "passes/native_calls/windows.h"
#include "streaming/walker.h"

namespace weft::streaming {

using ir::Builder;
using ir::CallText;
using ir::Op;
using ir::OpCode;
using ir::Shape;
using ir::ValueId;
using passes::channels_last;
using passes::channels_second;
using passes::Window;
using passes::Windows;
using Kind = Stream::Kind;
using Sizes = CallText::Sizes;

Stream Walker::permuted(const Stream& stream, const std::vector<int64_t>& perm) {
  auto [known, is_new] = permuted_.try_emplace({stream.origin, perm});
  if (!is_new && known->second.shift == stream.shift && known->second.since == stream.since &&
      known->second.time.length == stream.time.length)
    return known->second;
  TimeDim time = stream.time;
  time.dim = static_cast<size_t>(std::ranges::find(perm, static_cast<int64_t>(time.dim)) - perm.begin());
  return known->second = writer_.made(
             stream, time, [&](Builder& builder, ValueId value, int64_t) { return builder.transpose(value, perm); });
}

/// Makes a dim `times` as long: puts times - 1 zeros after each element.
Stream Walker::spread(const Op& op, const Stream& stream, size_t dim, int64_t times) {
  if (times == 1) return stream;
  const bool is_time = stream.time.dim == dim;
  const Stream from = is_time ? time_operand(op, stream, dim) : stream;
  Stream result = writer_.made(from, from.time, [&](Builder& builder, ValueId value, int64_t) {
    return passes::spread_out(builder, value, dim, times);
  });
  if (!is_time) return result;
  result.time.length = ir::Dim(times) * from.time.length;
  result.per_chunk *= times;
  result.shift *= times;
  result.settled *= times;
  return result;
}

/// Applies `fold` to the windows over x [.., spatial..., ..], given as one value for each element of a window. `shape`:
/// the result's shape in the whole program, with dims in x's order.
Stream Walker::folded(const Op& op, Stream x, Windows windows, const Shape& shape, const Fold& fold) {
  return moving(op, std::move(x), std::move(windows), shape,
                [&](Builder& builder, const Windows& all, ValueId value, const Sizes& begins, const Sizes& counts) {
                  return fold(builder, all.taps(builder, value, begins, counts));
                });
}

/// The same, of the windows as they lie.
Stream Walker::moving(const Op& op, Stream x, Windows windows, const Shape& shape, const OfWindows& of_windows) {
  const size_t end = windows.first + windows.dims.size();
  const bool is_over_time = x.time.dim >= windows.first && x.time.dim < end;
  if (!is_over_time && x.since >= 0) x = writer_.delayed(x, x.lead());
  Stream result = x;
  result.origin = writer_.new_origin();
  int64_t begin = 0, history = 0;
  if (is_over_time) {
    x = time_operand(op, x, x.time.dim);
    Window& window = windows.dims[x.time.dim - windows.first];
    x = after_constants(x, window.padding, windows.fill);
    const int64_t settled = whole_length(x) + window.padding + x.settled;
    if (x.per_chunk % window.stride != 0)
      refuse(op, "has windows {} steps apart, which don't fit into chunks of {} steps", window.stride, x.per_chunk);
    result.time = {x.time.dim, 1, 1, shape.at(x.time.dim)};
    result.per_chunk = x.per_chunk / window.stride;
    // The last window of a chunk ends at the chunk's last element, or as few before it as the stride allows.
    result.shift = ceil_divide(window.reach() + x.shift + 1 - window.stride, window.stride);
    if (x.since >= 0) result.shift = std::max(result.shift, x.since * result.per_chunk);
    result.since = Stream::kAtStart;
    const int64_t windows_settled = (settled - window.reach() - 1) / window.stride + 1;
    result.settled = std::min<int64_t>(windows_settled - whole_length(result), 0);
    history = window.stride * result.shift - x.shift;
    begin = std::max<int64_t>(-history, 0);
    window.padding = 0;
  }
  const auto make = [&](Builder& builder, ValueId value, int64_t first, int64_t elements) {
    std::vector<int64_t> begins, counts;
    for (size_t dim = windows.first; dim < end; ++dim) {
      const Window& window = windows.dims[dim - windows.first];
      const bool is_time = is_over_time && dim == x.time.dim;
      begins.push_back(is_time ? first : 0);
      counts.push_back(is_time ? elements : shape.at(dim).constant());
      if (window.padding == 0) continue;
      value = passes::padded(builder, value, dim, window.padding, windows.fill);
    }
    return of_windows(builder, windows, value, begins, counts);
  };
  const ValueId chunk = is_over_time ? writer_.with_history(x, std::max<int64_t>(history, 0)) : x.step;
  result.step = make(writer_.step(), chunk, begin, result.per_chunk);
  result.start = result.lead() > 0 ? make(writer_.start(), writer_.lead_of(x), 0, result.lead()) : ir::kNoValue;
  return result;
}

/// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups), by weights that are constants.
Walker::Convolution Walker::convolution_of(const Op& op, const CallText& call) {
  const Stream& weight = at(op.operands[call.operand(1).value()]);
  const Stream* bias = call.operand(2) ? &at(op.operands[*call.operand(2)]) : nullptr;
  if (weight.kind != Kind::kConstant || (bias != nullptr && bias->kind != Kind::kConstant))
    refuse(op, "takes weights that depend on inputs: they have to follow from the model's parameters");
  const Sizes stride = call.integers(3), padding = call.integers(4), dilation = call.integers(5);
  const Shape& kernel = whole_.type(op.operands[call.operand(1).value()]).shape;
  Convolution found;
  ValueId weights = weight.start;
  for (size_t i = 0; i + 2 < kernel.size(); ++i) {
    Window window{kernel[i + 2].constant(), stride.at(i), padding.at(i), dilation.at(i)};
    found.spread.push_back(1);
    if (call.flag(6)) {  // a convolution of the input with zeros between its elements, by the weights turned round
      found.spread.back() = window.stride;
      window = {window.kernel, 1, window.reach() - window.padding, window.dilation};
      if (window.padding < 0) refuse(op, "cuts off more at its edges than its kernel reaches: take a smaller padding");
    }
    found.windows.dims.push_back(window);
  }
  if (call.flag(6)) weights = passes::turned_weights(writer_.start(), weights, call.integer(8));
  const ir::Dim& channels = whole_.type(op.operands[call.operand(0).value()]).shape.at(1);
  if (!channels.is_constant())
    refuse(op, "has its channels in the dim of the steps: `time=` says which dim the steps are in");
  found.start = passes::convolution_weights(writer_.start(), weights, bias != nullptr ? bias->start : ir::kNoValue,
                                            call.integer(8), channels.constant());
  found.step = found.start;
  for (ValueId& each : found.step.by_group) each = writer_.in_step(Writer::constant(each));
  if (bias != nullptr) found.step.bias = in_step(*bias);
  return found;
}

void Walker::convolution(const Op& op, const CallText& call) {
  const Streams operands = operands_of(op);
  const Stream given = timed_again(op, operands[call.operand(0).value()]);
  const Convolution found = convolution_of(op, call);
  const size_t rank = writer_.step().type(given.step).shape.size();
  Stream x = permuted(given, channels_last(rank));
  for (size_t i = 0; i < found.spread.size(); ++i) x = spread(op, x, i + 1, found.spread[i]);
  Shape shape;
  for (int64_t dim : channels_last(rank)) shape.push_back(whole_.type(op.results[0]).shape[static_cast<size_t>(dim)]);
  const Stream y = folded(op, x, found.windows, shape, [&](Builder& builder, const std::vector<ValueId>& taps) {
    return passes::convolve(builder, taps, &builder == &writer_.step() ? found.step : found.start);
  });
  define(op, 0, permuted(y, channels_second(rank)), operands);
}

/// A call of PyTorch within a loop's step as ops of the IR: a convolution of known sizes by constant weights. None if
/// the call has to stay. `map`: the region's values in the program being written.
std::optional<ValueId> Walker::in_region(const Op& op, Builder& body, const passes::Substitution& map, bool is_step) {
  if (!ir::traits_of(op.code).calls_out) return std::nullopt;
  const CallText call("weft.stream", op.attr<std::string>("call"), std::vector<Sizes>(op.operands.size()));
  if (call.name() != "aten.convolution.default" || call.flag(6)) return std::nullopt;
  for (size_t i : {1, 2}) {
    if (!call.operand(i)) continue;
    const auto known = streams_.find(op.operands[*call.operand(i)]);
    if (known == streams_.end() || known->second.kind != Kind::kConstant) return std::nullopt;
  }
  const Convolution found = convolution_of(op, call);
  const Shape& shape = whole_.type(op.results[0]).shape;
  const size_t rank = shape.size();
  ValueId x = body.transpose(map(op.operands[call.operand(0).value()]), channels_last(rank));
  std::vector<int64_t> counts;
  for (size_t i = 0; i < found.windows.dims.size(); ++i) {
    if (found.windows.dims[i].padding > 0) x = passes::padded(body, x, i + 1, found.windows.dims[i].padding, 0);
    counts.push_back(shape[i + 2].constant());
  }
  const std::vector<ValueId> taps = found.windows.taps(body, x, std::vector<int64_t>(counts.size(), 0), counts);
  return body.transpose(passes::convolve(body, taps, is_step ? found.step : found.start), channels_second(rank));
}

/// (input, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override), or of maxima (input, kernel,
/// stride, padding, dilation, ceil_mode) with the places of the maxima as a second result.
void Walker::pool(const Op& op, const CallText& call, bool is_mean) {
  const Streams operands = operands_of(op);
  const Stream x = timed_again(op, operands[call.operand(0).value()]);
  const Sizes kernel = call.integers(1), stride = call.integers(2), padding = call.integers(3);
  const Sizes dilation = is_mean ? Sizes(kernel.size(), 1) : call.integers(4);
  Windows windows;
  windows.first = writer_.step().type(x.step).shape.size() - kernel.size();
  windows.fill = is_mean ? 0 : -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < kernel.size(); ++i)
    windows.dims.push_back({kernel[i], stride.empty() ? kernel[i] : stride[i], padding[i], dilation[i]});
  if (call.flag(is_mean ? 4 : 5)) refuse(op, "has ceil_mode, by which the last window depends on the sequence's end");
  const bool is_padded = std::ranges::any_of(padding, [](int64_t each) { return each != 0; });
  if (is_mean && is_padded && !call.flag(5)) refuse(op, "leaves padding out of its means: set count_include_pad");
  double divisor = static_cast<double>(std::reduce(kernel.begin(), kernel.end(), int64_t{1}, std::multiplies<>()));
  if (is_mean && !call.has_none(6)) divisor = static_cast<double>(call.integer(6));
  const OpCode combine = is_mean ? OpCode::kAdd : OpCode::kMaximum;
  const Stream y =
      folded(op, x, windows, whole_.type(op.results[0]).shape, [&](Builder& builder, const std::vector<ValueId>& taps) {
        ValueId total = taps[0];
        for (size_t i = 1; i < taps.size(); ++i) total = builder.binary(combine, total, taps[i]);
        if (!is_mean) return total;
        return builder.div(total, builder.constant(divisor, builder.type(total)));
      });
  if (!is_mean) end(op, "the places of maxima, counted from the sequence's beginning");
  define(op, 0, y, operands);
}

/// (input, output_size, scale): each step several times.
void Walker::repeat(const Op& op, const CallText& call) {
  const Streams operands = operands_of(op);
  const Stream from = time_operand(op, timed_again(op, operands[call.operand(0).value()]), 2);
  const ir::Dim& length = whole_.type(op.results[0]).shape[2];
  const std::optional<int64_t> times = lengths_.multiple(length, from.time.length);
  if (!times)
    refuse(op, "from {} to {} steps repeats some steps and not others", to_string(from.time.length), to_string(length));
  Stream result = writer_.made(from, {2, 1, 1, length}, [&](Builder& builder, ValueId value, int64_t elements) {
    Shape shape = builder.type(value).shape;
    shape.push_back(*times);
    value = builder.broadcast(value, shape, {0, 1, 2});
    shape.pop_back();
    shape[2] = elements * *times;
    return builder.reshape(value, shape);
  });
  result.per_chunk *= *times;
  result.shift *= *times;
  result.settled *= *times;
  define(op, 0, std::move(result), operands);
}

/// (input, dim, size, step): windows over a dim, their elements as a last dim.
void Walker::unfold(const Op& op, const CallText& call) {
  const Streams operands = operands_of(op);
  const Stream x = timed_again(op, operands[call.operand(0).value()]);
  const auto rank = static_cast<int64_t>(writer_.step().type(x.step).shape.size());
  Windows windows;
  windows.first = static_cast<size_t>(call.integer(1) < 0 ? call.integer(1) + rank : call.integer(1));
  windows.dims.push_back({call.integer(2), call.integer(3), 0, 1});
  define(op, 0,
         moving(op, x, windows, whole_.type(op.results[0]).shape,
                [](Builder& builder, const Windows& all, ValueId value, const Sizes& begins, const Sizes& counts) {
                  return all.in_rows(builder, value, begins[0], counts[0]);
                }),
         operands);
}

/// (input, dim, start, end, step): to the end, each `step` elements from the one before.
void Walker::strided_slice(const Op& op, const CallText& call) {
  const Streams operands = operands_of(op);
  const auto rank = static_cast<int64_t>(whole_.type(op.operands[0]).shape.size());
  const auto dim = static_cast<size_t>(call.integer(1) < 0 ? call.integer(1) + rank : call.integer(1));
  Stream x = time_operand(op, timed_again(op, operands[call.operand(0).value()]), dim);
  const int64_t first = call.has_none(2) ? 0 : call.integer(2);
  if (first < 0) refuse(op, "begins {} steps before the end of the sequence", -first);
  if (!call.has_none(3) && call.integer(3) != std::numeric_limits<int64_t>::max())
    refuse(op, "ends at step {} of the whole sequence", call.integer(3));
  Windows windows;
  windows.first = dim;
  windows.dims.push_back({1, call.integer(4), 0, 1});
  if (first > 0) refuse(op, "begins at step {}: take a slice of step 1 before", first);
  define(op, 0,
         folded(op, x, windows, whole_.type(op.results[0]).shape,
                [](Builder&, const std::vector<ValueId>& taps) { return taps[0]; }),
         operands);
}

void Walker::external(const Op& op) {
  const CallText call("weft.stream", op.attr<std::string>("call"), std::vector<Sizes>(op.operands.size()));
  if (call.name() == "aten.convolution.default") return convolution(op, call);
  if (call.name() == "aten.avg_pool2d.default" || call.name() == "aten.avg_pool3d.default") return pool(op, call, true);
  if (call.name() == "aten.max_pool2d_with_indices.default" || call.name() == "aten.max_pool3d_with_indices.default")
    return pool(op, call, false);
  if (call.name() == "aten.upsample_nearest1d.default") return repeat(op, call);
  if (call.name() == "aten.unfold.default") return unfold(op, call);
  if (call.name() == "aten.slice.Tensor") return strided_slice(op, call);
  if (call.name().starts_with("aten.reflection_pad") || call.name().starts_with("aten.replication_pad"))
    refuse(op, "pads several dims by their own elements in a way that no stream has: pad one dim after the other");
  refuse(op, "is a kernel of PyTorch's that has no streaming form");
}

}  // namespace weft::streaming
