// Ops that do the same at each step: the op itself, on a chunk.
#include <algorithm>

#include "streaming/walker.h"

namespace weft::streaming {

using ir::Dim;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Type;
using ir::ValueId;
using Kind = Stream::Kind;

namespace {

constexpr std::string_view kAllSteps =
    "over time (a mean, norm, softmax or attention over all steps) needs all steps of the sequence";

int64_t product_of(const ir::Shape& shape, size_t first, size_t end) {
  int64_t product = 1;
  for (size_t i = first; i < end; ++i) product *= shape.at(i).constant();
  return product;
}

bool has_symbol(const ir::Attr& attr) { return std::holds_alternative<Dim>(attr); }

}  // namespace

/// A chunk of a value that depends on no input, such as step numbers, so that it may run ahead of the inputs. Its
/// values in the two programs aren't set yet.
Stream Walker::free_running(const Op& op, size_t dim, const Dim& length) const {
  const auto rate = lengths_.rate(length);
  if (!rate || rate->elements <= 0) refuse(op, "has {} steps, which don't grow with the sequence", to_string(length));
  Stream stream;
  stream.kind = Kind::kTimed;
  stream.time = {dim, 1, 1, length};
  stream.per_chunk = rate->elements * writer_.chunk() / rate->steps;
  stream.shift = -std::max<int64_t>(ahead_of(stream), 0);
  stream.origin = writer_.new_origin();
  return stream;
}

/// A uniform value, or a value without time, turned into a timed one.
Stream Walker::timed_again(const Op& op, const Stream& stream) {
  if (stream.kind == Kind::kTimed) return stream;
  const Type& type = whole_.type(stream.maker->results[0]);
  if (lengths_.count(type) != 1) refuse(op, "has the number of steps in more than one dim");
  const auto found = std::ranges::find_if(type.shape, [&](const Dim& dim) { return lengths_.mentions(dim); });
  Stream timed = free_running(op, static_cast<size_t>(found - type.shape.begin()), *found);
  timed.since = stream.since;
  timed.step = uniform(op, stream, chunk_of(timed));
  if (timed.lead() > 0)
    timed.start = uniform(op, stream, lead_of(timed));
  else
    timed.since = Stream::kAtStart;
  return timed;
}

/// The streams delayed to the latest of them, so that elements with the same index are in the same chunk.
Walker::Streams Walker::aligned(const Op& op, Streams streams) {
  const auto first = std::ranges::find(streams, Kind::kTimed, &Stream::kind);
  const auto differs = [&](const Stream& s) {
    return s.kind == Kind::kTimed && !(s.time.length == first->time.length);
  };
  if (std::ranges::any_of(streams, differs)) {
    for (Stream& stream : streams)
      if (stream.kind == Kind::kTimed && stream.time.outer == 1) stream = writer_.as_time(stream);
    if (std::ranges::any_of(streams, differs)) refuse(op, "joins sequences of different lengths");
  }
  int64_t latest = first->shift;
  for (const Stream& stream : streams)
    if (stream.kind == Kind::kTimed) latest = std::max(latest, stream.shift);
  for (Stream& stream : streams)
    if (stream.kind == Kind::kTimed) stream = writer_.delayed(stream, latest - stream.shift);
  return streams;
}

/// The streams, of which the timed ones are aligned, delayed where element 0 is in a chunk before `known`. What then
/// lies before a chunk as values of the step stays so if `keeps_lead`; else they are delayed until nothing does.
Walker::Streams Walker::late_enough(Streams streams, int64_t known, bool keeps_lead) {
  Stream all = *std::ranges::find(streams, Kind::kTimed, &Stream::kind);
  for (const Stream& stream : streams)
    if (stream.kind == Kind::kTimed) all.since = std::max(all.since, stream.since);
  if (std::max(all.since, known) < 0) return streams;
  int64_t late = 0;
  if (known > all.chunk_of_first())
    late = all.lead() > 0 ? (known - all.first_chunk()) * all.per_chunk : known * all.per_chunk - all.shift;
  all.since = std::max(all.since, known);
  all.shift += late;
  if (!keeps_lead) {
    late += all.lead();
    all.shift += all.lead();
  }
  for (Stream& stream : streams) {
    if (stream.kind != Kind::kTimed) continue;
    stream = writer_.delayed(stream, late);
    stream.ahead -= late;  // it is this op that looks ahead
    if (all.lead() > 0) stream = writer_.from_chunk(stream, all.since);
  }
  return streams;
}

/// The streams delayed until what the op takes beside them is known.
Walker::Streams Walker::known_together(const Op& op, Streams streams) {
  int64_t known = Stream::kAtStart;
  for (const Stream& stream : streams)
    if (stream.kind != Kind::kTimed) known = std::max(known, known_from(stream));
  const ir::OpTraits& traits = ir::traits_of(op.code);
  const bool moves = traits.elements != ir::Elements::kComputed || traits.is_join || traits.spreads;
  const bool is_cheap = moves || ir::info(op.code).op_class == OpClass::kElementwise;
  const bool may_fail = traits.fails != ir::Fails::kNever && (traits.fails_where != ir::FailsWhere::kIntegers ||
                                                              !is_floating(whole_.type(op.results[0]).dtype));
  return late_enough(std::move(streams), known, is_cheap && !may_fail);
}

/// For an op that may fail: elements with a negative index, which are no elements of the sequence, must not make it
/// fail, nor what is not known yet.
Walker::Streams Walker::guarded(const Op& op, Streams streams) {
  if (ir::traits_of(op.code).fails == ir::Fails::kNever) return streams;
  const bool is_gather = op.code == OpCode::kGather;
  for (size_t i = is_gather ? 1 : 0; i < streams.size(); ++i) {
    Stream& stream = streams[i];
    if (is_floating(whole_.type(op.operands[i]).dtype)) continue;
    const double harmless = is_gather ? 0 : 1;
    if (stream.kind == Kind::kTimed) stream = writer_.masked(stream, harmless);
    if (stream.kind != Kind::kLatched) continue;
    stream.step = writer_.held(stream.step, stream.since, harmless);
    stream.is_held = true;
  }
  return streams;
}

/// For an op that may fail: integers that it reads before the chunk in which they come must not make it fail.
void Walker::harmless_before(const Op& op, int64_t since, passes::Substitution& map) {
  const bool is_gather = op.code == OpCode::kGather;
  for (size_t i = is_gather ? 1 : 0; i < op.operands.size(); ++i) {
    const Stream& operand = at(op.operands[i]);
    const Type& type = whole_.type(op.operands[i]);
    if (operand.kind != Kind::kLatched || is_floating(type.dtype)) continue;
    const ValueId harmless = writer_.step().constant(is_gather ? 0 : 1, type);
    map.set(op.operands[i], writer_.in_chunk(since, in_chunk(operand, since), harmless));
  }
}

void Walker::local(const Op& op) {
  for (const auto& [name, attr] : op.attrs)
    if (has_symbol(attr)) refuse(op, "takes {} from the number of steps, which a stream doesn't know", name);
  if (op.results.size() != 1) refuse(op, "has no streaming form");
  if (op.code == OpCode::kGather && at(op.operands[0]).kind == Kind::kUniform)
    refuse(op, "reads a table with a row for each step by number");
  const Streams operands = guarded(op, known_together(op, aligned(op, operands_of(op))));
  const Stream& like = *std::ranges::find(operands, Kind::kTimed, &Stream::kind);
  Stream result = like;
  result.time = time_after(op, operands);
  for (const Stream& operand : operands)
    if (operand.kind == Kind::kTimed) result.settled = std::min(result.settled, operand.settled);
  result.origin = writer_.new_origin();
  result.step = emit(op, operands, chunk_of(like));
  result.start = result.lead() > 0 ? emit(op, operands, lead_of(like)) : ir::kNoValue;
  define(op, 0, std::move(result), operands);
}

/// Where time is in the result. Refuses ops that mix values with time in different dims.
TimeDim Walker::time_after(const Op& op, const Streams& operands) {
  std::optional<TimeDim> after;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].kind != Kind::kTimed) continue;
    const TimeDim here = moved(op, i, operands[i]);
    if (after && !(*after == here)) refuse(op, "joins values whose steps are in different dims, which needs all steps");
    after = here;
  }
  return *after;
}

TimeDim Walker::moved(const Op& op, size_t operand, const Stream& stream) {
  TimeDim time = stream.time;
  if (ir::info(op.code).op_class == OpClass::kElementwise) return time;
  const auto dims = [&](std::string_view name) -> const std::vector<int64_t>& {
    return op.attr<std::vector<int64_t>>(name);
  };
  switch (op.code) {
    case OpCode::kBroadcast:
      time.dim = static_cast<size_t>(dims("dims")[time.dim]);
      return time;
    case OpCode::kReshape:
      return reshaped(op, time);
    case OpCode::kTranspose: {
      const auto& perm = dims("perm");
      time.dim = static_cast<size_t>(std::ranges::find(perm, static_cast<int64_t>(time.dim)) - perm.begin());
      return time;
    }
    case OpCode::kSlice:
    case OpCode::kPad:
    case OpCode::kConcat:
      return time;
    case OpCode::kReverse:
      if (op.attr<int64_t>("dim") == static_cast<int64_t>(time.dim))
        refuse(op, "reverses the steps, which needs the sequence's end first");
      return time;
    case OpCode::kGather:
      if (operand == 1) return time;
      if (time.dim == 0)
        refuse(op,
               "picks steps by number, as `x[:, -2]` does: take `x[:, -1]`, or `x[:, k]` or a slice, counted from the "
               "beginning, or return all steps, and pick outside");
      time.dim += static_cast<size_t>(whole_.type(op.operands[1]).rank()) - 1;
      return time;
    case OpCode::kReduceSum:
    case OpCode::kReduceMax: {
      const auto& over = dims("dims");
      if (std::ranges::find(over, static_cast<int64_t>(time.dim)) != over.end()) refuse(op, "{}", kAllSteps);
      time.dim -= static_cast<size_t>(
          std::ranges::count_if(over, [&](int64_t dim) { return dim < static_cast<int64_t>(time.dim); }));
      return time;
    }
    case OpCode::kMatmul:
    case OpCode::kBatchMatmul:
      return product(op, operand, stream);
    default:
      refuse(op, "has no streaming form");
  }
}

/// For products: time can't be a dim that is summed over.
TimeDim Walker::product(const Op& op, size_t operand, const Stream& stream) {
  TimeDim time = stream.time;
  const auto rank = static_cast<size_t>(whole_.type(op.operands[operand]).rank());
  const auto result_rank = static_cast<size_t>(whole_.type(op.results[0]).rank());
  const bool is_turned = op.attr_or<bool>(operand == 0 ? "transpose_a" : "transpose_b", false);
  const bool is_batch = op.code == OpCode::kBatchMatmul;
  if (time.dim + 2 < rank && (operand == 0 || is_batch)) return time;
  // The two dims of a matrix; of matmul's first operand all but the last one are rows.
  const size_t summed = operand == 0 ? (is_turned ? rank - 2 : rank - 1) : (is_turned ? rank - 1 : rank - 2);
  if (time.dim == summed) refuse(op, "{}", kAllSteps);
  time.dim = operand == 0 ? result_rank - 2 : result_rank - 1;
  return time;
}

TimeDim Walker::reshaped(const Op& op, const TimeDim& time) {
  const ir::Shape& from = whole_.type(op.operands[0]).shape;
  const ir::Shape& to = whole_.type(op.results[0]).shape;
  if (lengths_.count(whole_.type(op.results[0])) != 1) refuse(op, "has the number of steps in more than one dim");
  const int64_t before = product_of(from, 0, time.dim) * time.outer;
  const auto found = std::ranges::find_if(to, [&](const Dim& dim) { return lengths_.mentions(dim); });
  TimeDim after{static_cast<size_t>(found - to.begin()), 1, 1, time.length};
  const int64_t left = product_of(to, 0, after.dim);
  const std::optional<int64_t> times = lengths_.multiple(*found, time.length);
  if (!times || left == 0 || before % left != 0 || *times % (before / left) != 0)
    refuse(op, "from {} to {} mixes elements of different steps", to_string(from), to_string(to));
  after.outer = before / left;
  after.inner = *times / after.outer;
  return after;
}

}  // namespace weft::streaming
