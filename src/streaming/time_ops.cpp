// Ops along time: slices, pads, concatenations, counting, and joining steps. In the step program they move no data:
// what changes is which elements a chunk holds.
#include <algorithm>

#include "streaming/walker.h"

namespace weft::streaming {

using ir::Attrs;
using ir::Builder;
using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::Type;
using ir::ValueId;
using Kind = Stream::Kind;

/// The stream as a timed stream in which dim `dim` holds the steps and nothing else.
Stream Walker::time_operand(const Op& op, const Stream& stream, size_t dim) {
  Stream timed = timed_again(op, stream);
  if (timed.time.dim != dim) refuse(op, "works along another dim than the steps are in");
  if (timed.time.outer != 1)
    refuse(op, "works along a dim that joins the steps of several rows: give the rows a dim of their own");
  return writer_.as_time(timed);
}

bool Walker::is_along_time(const Op& op, const Streams& operands) {
  const auto is_at = [&](int64_t dim) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const Stream& stream = operands[i];
      if (stream.kind == Kind::kTimed && stream.time.dim == static_cast<size_t>(dim)) return true;
      if (stream.kind == Kind::kUniform &&
          lengths_.mentions(whole_.type(op.operands[i]).shape.at(static_cast<size_t>(dim))))
        return true;
    }
    return false;
  };
  if (op.code == OpCode::kSlice || op.code == OpCode::kPad || op.code == OpCode::kConcat)
    return is_at(op.attr<int64_t>("dim"));
  return op.code == OpCode::kReshape && is_frames(op, operands[0]);
}

void Walker::along_time(const Op& op, const Streams& operands) {
  switch (op.code) {
    case OpCode::kSlice:
      return slice(op, operands);
    case OpCode::kPad:
      return pad(op, operands);
    case OpCode::kConcat:
      return concat(op, operands);
    default:
      return frames(op, operands);
  }
}

void Walker::slice(const Op& op, const Streams& operands) {
  const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  Stream result = time_operand(op, operands[0], dim);
  const Dim start = ir::size_attr(op, "start"), &length = whole_.type(op.results[0]).shape.at(dim);
  if (length == Dim(1) && start == whole_.type(op.operands[0]).shape[dim] - Dim(1)) return last(op, result);
  if (lengths_.mentions(start))
    return end(op, fmt::format("step {}, counted from the end of the sequence", to_string(start)), &op);
  if (!lengths_.mentions(length)) return latch(op, result, start.constant(), length.constant());
  const auto rate = lengths_.rate(length), before = lengths_.rate(result.time.length);
  if (!rate || !before || !(*rate == *before)) refuse(op, "takes a part of the sequence that depends on its length");
  const int64_t lead = result.lead(), skipped = start.constant();
  // The elements are the same with shifted indices; but a history would begin with other elements.
  if (lead > 0) result.origin = writer_.new_origin();
  result.shift += skipped;
  const int64_t before_cut = whole_length(result) - skipped;
  result.time.length = length;
  result.settled = std::min<int64_t>(result.settled + before_cut - whole_length(result), 0);
  result.start = result.lead() > 0
                     ? passes::cut(writer_.before(result), result.start, dim, lead - result.lead(), result.lead())
                     : ir::kNoValue;
  define(op, 0, std::move(result), operands);
}

/// The last element so far, as if the sequence ended with the chunk.
void Walker::last(const Op& op, const Stream& from) {
  if (from.since > 0) return end(op, "the last step, which may lie before the first steps", &op);
  const Stream real = writer_.masked(from, 0);
  const auto dim = static_cast<int64_t>(from.time.dim);
  Stream result;
  result.kind = Kind::kLast;
  result.step = writer_.step().slice(real.step, dim, from.per_chunk - 1, from.per_chunk);
  result.ahead = ahead_of(from);
  result.settled = from.settled;
  result.looks_ahead = from.looks_ahead == nullptr ? &op : from.looks_ahead;
  define(op, 0, std::move(result), {});
}

/// The elements at `count` places from `first` on.
void Walker::latch(const Op& op, const Stream& from, int64_t first, int64_t count) {
  // What padding behind the end decides hasn't come.
  const int64_t unsettled = from.settled < 0 ? std::max<int64_t>(-ahead_of(from) - from.settled, 0) : 0;
  define(op, 0, writer_.latched(writer_.delayed(from, unsettled), first, count), {});
}

/// The stream with `elements` times `fill` at its front, in place of elements that already lie before its first one.
Stream Walker::after_constants(const Stream& stream, int64_t elements, double fill) {
  if (elements == 0) return stream;
  // The shift gives an index in the stream to elements that had a negative one, so these elements need a value.
  Stream result = stream.lead() > 0 ? stream : writer_.masked(stream, fill);
  result.shift -= elements;
  result.origin = writer_.new_origin();
  if (result.lead() == 0) return result;
  const size_t dim = stream.time.dim;
  Type type = writer_.step().type(stream.step);
  type.shape[dim] = std::min(elements, result.lead());
  Builder& before = writer_.before(result);
  const ValueId front = before.constant(fill, type);
  result.start = stream.lead() > 0 ? joined(before, front, stream.start, dim) : front;
  return result;
}

/// The chunk of a stream, in which `elements` elements of `front` lie before the stream's element 0, where it has any.
ValueId Walker::with_front(ValueId front, int64_t elements, const Stream& stream) {
  Builder& step = writer_.step();
  const auto dim = static_cast<int64_t>(stream.time.dim);
  const Type type = step.type(stream.step);
  const ValueId is_behind = writer_.mask(stream.per_chunk, stream.shift);
  ValueId rows = front;
  if (elements == 1) {
    ir::Shape shape = step.type(front).shape;
    shape.erase(shape.begin() + dim);
    std::vector<int64_t> others;
    for (int64_t i = 0; i < type.rank(); ++i)
      if (i != dim) others.push_back(i);
    rows = step.broadcast(step.reshape(front, shape), type.shape, others);
  } else {
    std::vector<int64_t> to_front{dim}, back;
    for (int64_t i = 0; i < type.rank(); ++i)
      if (i != dim) to_front.push_back(i);
    for (int64_t i = 0; i < type.rank(); ++i) back.push_back(i < dim ? i + 1 : i == dim ? 0 : i);
    const ValueId index = writer_.positions(stream.per_chunk, stream.shift - elements);
    const ValueId zero = step.constant(0, step.type(index));
    const ValueId is_in_front = writer_.mask(stream.per_chunk, stream.shift - elements);
    const ValueId place = step.select(is_behind, zero, step.select(is_in_front, index, zero));
    rows = step.transpose(step.emit(OpCode::kGather, {step.transpose(front, to_front), place}), back);
  }
  return step.select(step.broadcast(is_behind, type.shape, {dim}), stream.step, rows);
}

/// `stream` behind the `elements` elements of `front`, which has no time.
Stream Walker::behind(const Stream& front, int64_t elements, Stream stream) {
  if (elements == 0) return stream;
  const int64_t since = std::max(stream.since, known_from(front));
  if (since >= 0) stream = writer_.from_chunk(stream, since);
  Stream result = stream;
  result.shift -= elements;
  result.origin = writer_.new_origin();
  if (stream.shift > stream.first_chunk() * stream.per_chunk)
    result.step = with_front(in_step(front), elements, stream);
  result.start = ir::kNoValue;
  if (result.lead() == 0) return result;
  const size_t dim = stream.time.dim;
  const bool is_at_start = since < 0;
  const ValueId rows = is_at_start ? front.start : in_chunk(front, since);
  Builder& before = writer_.before(result);
  const ValueId first = passes::cut(before, rows, dim, 0, std::min(elements, result.lead()));
  result.start = stream.lead() > 0 ? joined(before, first, writer_.lead_of(stream), dim) : first;
  return result;
}

void Walker::pad(const Op& op, const Streams& operands) {
  const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  const Stream stream = time_operand(op, operands[0], dim);
  const Dim low = ir::size_attr(op, "low");
  if (lengths_.mentions(low)) refuse(op, "pads {} steps, which depends on the sequence's length", to_string(low));
  if (low.constant() < 0) refuse(op, "pads {} steps in front: a number of steps isn't negative", low.constant());
  Stream result = after_constants(stream, low.constant(), 0);
  result.time.length = whole_.type(op.results[0]).shape.at(dim);
  result.settled -= whole_length(result) - low.constant() - whole_length(stream);
  define(op, 0, std::move(result), operands);
}

void Walker::concat(const Op& op, const Streams& operands) {
  const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  const auto has_steps = [&](size_t i) { return lengths_.mentions(whole_.type(op.operands[i]).shape.at(dim)); };
  std::optional<size_t> main;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!has_steps(i)) continue;
    if (main) refuse(op, "puts one sequence behind another, which needs the first one's end");
    main = i;
  }
  Stream stream = time_operand(op, operands[main.value()], dim);
  for (size_t i = *main; i-- > 0;) {
    const Stream& part = operands[i];
    if (part.kind == Kind::kEnd) refuse_end(op, part);
    if (part.kind != Kind::kConstant && part.kind != Kind::kHeld && part.kind != Kind::kLatched)
      refuse(op, "puts values in front of the sequence that are known only at its end");
    stream = behind(part, whole_.type(op.operands[i]).shape.at(dim).constant(), std::move(stream));
    if (stream.lead() == 0) stream.since = Stream::kAtStart;
  }
  for (size_t i = *main + 1; i < operands.size(); ++i)
    stream.settled -= whole_.type(op.operands[i]).shape.at(dim).constant();
  stream.time.length = whole_.type(op.results[0]).shape.at(dim);
  define(op, 0, std::move(stream), operands);
}

/// Whether the op's result is how many steps there are.
bool Walker::is_length(const Op& op) const { return op.code == OpCode::kSize && lengths_.mentions(op.attr<Dim>("of")); }

/// Whether the op numbers the steps.
bool Walker::is_count(const Op& op) const {
  if (op.code != OpCode::kIota) return false;
  const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  return lengths_.mentions(whole_.type(op.results[0]).shape.at(dim));
}

/// An iota along time: each step's number.
void Walker::count(const Op& op) {
  const Type& type = whole_.type(op.results[0]);
  const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  if (lengths_.count(type) != 1) refuse(op, "has the number of steps in more than one dim");
  Stream result = free_running(op, dim, type.shape[dim]);
  const auto whole_dim = static_cast<int64_t>(dim);
  Builder& step = writer_.step();
  const ValueId numbers = step.cast(writer_.positions(result.per_chunk, result.shift), type.dtype);
  result.step = step.broadcast(numbers, with_size(type.shape, dim, result.per_chunk), {whole_dim});
  if (result.lead() > 0) {
    const Type front{type.dtype, with_size(type.shape, dim, result.lead())};
    result.start = writer_.start().emit(OpCode::kIota, {}, {{"dim", whole_dim}}, &front);
  }
  define(op, 0, std::move(result), {});
}

/// Rows of a table that are picked by step number, as position embeddings are: each step's row.
void Walker::positions(const Op& op) {
  const Type& type = whole_.type(op.results[0]);
  const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  const Dim first = ir::size_attr(op, "start");
  if (lengths_.mentions(first)) refuse(op, "begins at {}, counted from the end of the sequence", to_string(first));
  if (lengths_.count(type) != 1) refuse(op, "has the number of steps in more than one dim");
  std::vector<int64_t> to_front{static_cast<int64_t>(dim)}, back(type.shape.size());
  for (size_t i = 0; i < type.shape.size(); ++i)
    if (i != dim) to_front.push_back(static_cast<int64_t>(i));
  for (size_t i = 0; i < back.size(); ++i) back[static_cast<size_t>(to_front[i])] = static_cast<int64_t>(i);
  Stream result = free_running(op, dim, type.shape[dim]);
  const Stream& table = at(op.operands[0]);
  const auto row = static_cast<int64_t>(dim);
  const ValueId rows = writer_.start().transpose(table.start, to_front);
  Builder& step = writer_.step();
  const ValueId index = writer_.positions(result.per_chunk, result.shift - first.constant());
  result.step = step.transpose(step.emit(OpCode::kGather, {writer_.in_step(Writer::constant(rows)), index}), back);
  if (result.lead() > 0)
    result.start = writer_.start().slice(table.start, row, first.constant(), first.constant() + result.lead());
  define(op, 0, std::move(result), {});
}

/// Whether a reshape joins several steps to a frame, `[B,2*T,F]` as `[B,T,2,F]`.
bool Walker::is_frames(const Op& op, const Stream& stream) {
  if (stream.kind != Kind::kTimed || lengths_.count(whole_.type(op.results[0])) != 1) return false;
  for (const Dim& dim : whole_.type(op.results[0]).shape)
    if (lengths_.mentions(dim)) return lengths_.multiple(stream.time.length, dim).value_or(1) > 1;
  return false;
}

/// How many elements of each frame are read, if slices of frames are all that is read.
int64_t Walker::used_of_frames(const Op& frames, size_t dim) const {
  const ir::Shape& shape = whole_.type(frames.results[0]).shape;
  const int64_t size = dim < shape.size() ? shape[dim].constant() : 1;
  int64_t used = 0;
  const auto read = [&](const Op& op) {
    bool is_reader = false;
    passes::for_each_use(op, [&](ValueId value) { is_reader |= value == frames.results[0]; });
    if (!is_reader) return;
    const std::optional<ir::SliceRange> range = op.code == OpCode::kSlice ? ir::constant_range(op) : std::nullopt;
    used = std::max(used, range && range->dim == static_cast<int64_t>(dim) ? range->limit : size);
  };
  std::ranges::for_each(whole_.body.ops, read);
  const bool is_result = std::ranges::find(whole_.body.results, frames.results[0]) != whole_.body.results.end();
  return is_result || used == 0 ? size : used;
}

void Walker::frames(const Op& op, const Streams& operands) {
  const Stream from = time_operand(op, operands[0], operands[0].time.dim);
  const ir::Shape& shape = whole_.type(op.results[0]).shape;
  const auto found = std::ranges::find_if(shape, [&](const Dim& dim) { return lengths_.mentions(dim); });
  const int64_t size = lengths_.multiple(from.time.length, *found).value();
  const auto elements_before = [](const ir::Shape& of, size_t dim) {
    int64_t product = 1;
    for (size_t i = 0; i < dim; ++i) product *= of[i].constant();
    return product;
  };
  Stream result = from;
  result.time = {static_cast<size_t>(found - shape.begin()), 1, 1, *found};
  if (elements_before(shape, result.time.dim) != elements_before(whole_.type(op.operands[0]).shape, from.time.dim))
    refuse(op, "takes {} steps together, and other dims with them", size);
  result.per_chunk = from.per_chunk / size;

  // Part of a frame is a slice only if the next dim is the frame.
  const bool is_dim = result.time.dim + 1 < shape.size() && shape[result.time.dim + 1] == Dim(size);
  const int64_t used = is_dim ? used_of_frames(op, result.time.dim + 1) : size;
  result.shift = ceil_divide(from.shift + used - size, size);
  if (from.since >= 0) result.shift = std::max(result.shift, from.since * result.per_chunk);
  result.since = Stream::kAtStart;
  result.origin = writer_.new_origin();
  const int64_t settled = (whole_length(from) + from.settled - used) / size + 1;
  result.settled = std::min<int64_t>(settled - whole_length(result), 0);
  const Type& type = whole_.type(op.results[0]);
  const int64_t history = size * result.shift - from.shift;
  ValueId window = writer_.with_history(from, std::max<int64_t>(history, 0));
  if (history < 0) {  // the frame's last elements, which are never read, haven't arrived yet
    const Attrs behind{{"dim", static_cast<int64_t>(from.time.dim)}, {"low", int64_t{0}}, {"high", -history}};
    window = writer_.step().emit(OpCode::kPad, {window}, behind);
  }
  const ValueId steps =
      passes::cut(writer_.step(), window, from.time.dim, std::max<int64_t>(-history, 0), from.per_chunk);
  result.step = writer_.step().reshape(steps, lengths_.sized(type, *found, result.per_chunk).shape);
  result.start = ir::kNoValue;
  if (result.lead() > 0) {
    ValueId lead = writer_.lead_of(from);
    if (const int64_t missing = result.lead() * size - from.lead(); missing > 0) {
      const Attrs behind{{"dim", static_cast<int64_t>(from.time.dim)}, {"low", int64_t{0}}, {"high", missing}};
      lead = writer_.start().emit(OpCode::kPad, {lead}, behind);
    }
    lead = passes::cut(writer_.start(), lead, from.time.dim, 0, result.lead() * size);
    result.start = writer_.start().reshape(lead, lengths_.sized(type, *found, result.lead()).shape);
  }
  define(op, 0, std::move(result), operands);
}

}  // namespace weft::streaming
