#include "streaming/writer.h"

#include <algorithm>

#include "passes/native_calls/windows.h"

namespace weft::streaming {

using ir::Builder;
using ir::Shape;
using ir::Type;
using ir::ValueId;

Shape with_size(Shape shape, size_t dim, int64_t size) {
  shape.at(dim) = size;
  return shape;
}

ValueId joined(Builder& builder, ValueId part, ValueId value, size_t dim) {
  if (builder.type(part).shape.at(dim) == ir::Dim(0)) return value;
  if (builder.type(value).shape.at(dim) == ir::Dim(0)) return part;
  return builder.concat({part, value}, static_cast<int64_t>(dim));
}

namespace {

/// A program with the whole program's values and no ops.
ir::Program without_ops(const ir::Program& whole, std::string_view name) {
  ir::Program program;
  program.name = name;
  program.values = whole.values;
  for (ir::Value& value : program.values) value.name.clear();
  return program;
}

/// The shape with time as a dim of its own.
Shape apart_shape(const Shape& shape, const TimeDim& time, int64_t elements) {
  Shape result(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(time.dim));
  if (time.outer != 1) result.emplace_back(time.outer);
  result.emplace_back(elements);
  if (time.inner != 1) result.emplace_back(time.inner);
  result.insert(result.end(), shape.begin() + static_cast<std::ptrdiff_t>(time.dim) + 1, shape.end());
  return result;
}

}  // namespace

Writer::Writer(const ir::Program& whole, const Lengths& lengths, int64_t chunk, Histories histories)
    : lengths_(lengths),
      chunk_(chunk),
      step_program_(without_ops(whole, "step")),
      start_program_(without_ops(whole, "start")),
      step_(step_program_, step_program_.body),
      start_(start_program_, start_program_.body),
      planned_(std::move(histories)) {}

// ---- inputs and constants

ValueId Writer::add_input(const Type& type) {
  inputs_.push_back(step_program_.new_value(type));
  return inputs_.back();
}

Stream Writer::add_weight(const Type& type) {
  const ValueId weight = start_program_.new_value(type);
  weight_at_[weight] = weights_.size();
  weights_.push_back(weight);
  return constant(weight);
}

Stream Writer::constant(ValueId start) {
  Stream stream;
  stream.start = start;
  return stream;
}

ValueId Writer::in_step(const Stream& constant) {
  if (auto known = in_step_.find(constant.start); known != in_step_.end()) return known->second;
  const ValueId input = step_program_.new_value(start_.type(constant.start));
  if (auto weight = weight_at_.find(constant.start); weight != weight_at_.end()) {
    constants_.push_back({input, {true, weight->second}});
  } else {
    constants_.push_back({input, {false, derived_.size()}});
    derived_.push_back(constant.start);
  }
  in_step_[constant.start] = input;
  return input;
}

// ---- timed values

ValueId Writer::lead_of(const Stream& timed) {
  if (timed.start != ir::kNoValue) return timed.start;
  internal_check(timed.lead() == 0, "streaming: a value without the elements before its first chunk");
  Type type = step_.type(timed.step);
  type.shape.at(timed.time.dim) = 0;
  return before(timed).constant(0, type);
}

Stream Writer::made(const Stream& from, TimeDim time, const Make& make) {
  Stream to = from;
  to.time = std::move(time);
  to.origin = new_origin();
  to.step = make(step_, from.step, from.per_chunk);
  to.start = from.lead() > 0 ? make(before(from), lead_of(from), from.lead()) : ir::kNoValue;
  return to;
}

Stream Writer::apart(const Stream& timed) {
  if (timed.time.is_apart()) return timed;
  const TimeDim& time = timed.time;
  const size_t dim = time.dim + (time.outer != 1 ? 1 : 0);
  Stream result = made(timed, {dim, 1, 1, time.length}, [&](Builder& builder, ValueId value, int64_t elements) {
    return builder.reshape(value, apart_shape(builder.type(value).shape, time, elements));
  });
  result.origin = timed.origin;
  return result;
}

Stream Writer::merged(const Stream& apart, const TimeDim& time) {
  if (time.is_apart()) return apart;
  Stream result = made(apart, time, [&](Builder& builder, ValueId value, int64_t elements) {
    Shape shape = builder.type(value).shape;
    const auto first = shape.begin() + static_cast<std::ptrdiff_t>(time.dim);
    *first = time.outer * elements * time.inner;
    shape.erase(first + 1, first + 1 + (time.outer != 1 ? 1 : 0) + (time.inner != 1 ? 1 : 0));
    return builder.reshape(value, shape);
  });
  result.origin = apart.origin;
  return result;
}

Stream Writer::as_time(const Stream& timed) {
  const int64_t times = timed.time.inner;
  if (times == 1) return timed;
  internal_check(timed.time.outer == 1, "streaming: elements of several rows as time");
  Stream result = timed;
  result.origin = new_origin();
  result.time = {timed.time.dim, 1, 1, ir::Dim(times) * timed.time.length};
  result.per_chunk *= times;
  result.shift *= times;
  result.ahead *= times;
  result.settled *= times;
  return result;
}

/// The elements that a history of `kept` elements has before the first step: zeros, and the lead that weights give.
ValueId Writer::initial_history(const Stream& apart, int64_t kept) {
  const size_t dim = apart.time.dim;
  const int64_t known = apart.since < 0 ? apart.lead() : 0, used = std::min(known, kept);
  Type zeros = step_.type(apart.step);
  zeros.shape[dim] = kept - used;
  const ValueId silence = start_.constant(0, zeros);
  if (used == 0) return silence;
  return joined(start_, silence, passes::cut(start_, apart.start, dim, known - used, used), dim);
}

ValueId Writer::with_lead(const Stream& apart, ValueId before) {
  const size_t dim = apart.time.dim;
  const int64_t kept = step_.type(before).shape[dim].constant(), used = std::min(apart.lead(), kept);
  if (used == 0) return before;
  const ValueId lead = passes::cut(step_, apart.start, dim, apart.lead() - used, used);
  const ValueId last = in_chunk(apart.since, lead, passes::cut(step_, before, dim, kept - used, used));
  return kept == used ? last : joined(step_, passes::cut(step_, before, dim, 0, kept - used), last, dim);
}

ValueId Writer::with_history(const Stream& apart, int64_t elements) {
  if (elements == 0) return apart.step;
  const size_t dim = apart.time.dim;
  int64_t& wanted = wanted_[apart.origin];
  wanted = std::max(wanted, elements);
  auto found = kept_.find(apart.origin);
  if (found == kept_.end() || found->second.elements < elements) {
    const auto planned = planned_.find(apart.origin);
    const int64_t kept = std::max(elements, planned == planned_.end() ? 0 : planned->second);
    const ValueId state = add_state("history", initial_history(apart, kept));
    const ValueId before = apart.since < 0 ? state : with_lead(apart, state);
    const ValueId window = step_.concat({before, apart.step}, static_cast<int64_t>(dim));
    set_next(state, passes::cut(step_, window, dim, apart.per_chunk, kept));
    found = kept_.insert_or_assign(apart.origin, Kept{window, kept}).first;
  }
  return passes::cut(step_, found->second.window, dim, found->second.elements - elements, elements + apart.per_chunk);
}

Stream Writer::delayed(const Stream& timed, int64_t elements) {
  if (elements == 0) return timed;
  const Stream from = apart(timed);
  Stream to = from;
  to.shift += elements;
  to.ahead += elements;
  to.step = passes::cut(step_, with_history(from, elements), from.time.dim, 0, from.per_chunk);
  to.start = to.lead() > 0 ? passes::cut(before(from), from.start, from.time.dim, 0, to.lead()) : ir::kNoValue;
  to.origin = new_origin();
  return merged(to, timed.time);
}

Stream Writer::from_chunk(const Stream& timed, int64_t chunk) {
  if (timed.since >= chunk) return timed;
  const Stream from = apart(timed);
  Stream to = from;
  to.since = chunk;
  to.origin = new_origin();
  to.start = ir::kNoValue;
  if (to.lead() > 0) {
    to.start = chunk == 0 ? in_step(constant(from.start))
                          : passes::cut(step_, with_history(from, to.lead()), from.time.dim, 0, to.lead());
  }
  return merged(to, timed.time);
}

// ---- elements at fixed places

Stream Writer::latched(const Stream& timed, int64_t first, int64_t count) {
  const size_t dim = timed.time.dim;
  const int64_t end = first + count + timed.shift;
  if (timed.since < 0 && end <= 0) return constant(passes::cut(start_, lead_of(timed), dim, first, count));
  Stream found;
  found.kind = Stream::Kind::kLatched;
  found.since = std::max((std::max<int64_t>(end, 1) - 1) / timed.per_chunk, timed.first_chunk());
  const int64_t index = found.since * timed.per_chunk - timed.shift;  // of the chunk's first element
  const int64_t history = std::max<int64_t>(index - first, 0);
  found.step = passes::cut(step_, with_history(timed, history), dim, first - index + history, count);
  return found;
}

ValueId Writer::is_chunk(int64_t chunk) {
  auto [known, is_new] = is_chunk_.try_emplace(chunk, ir::kNoValue);
  if (!is_new) return known->second;
  const ValueId number = step_.constant(static_cast<double>(chunk), {DType::kI64, {}});
  return known->second = step_.binary(ir::OpCode::kEq, counter(), number);
}

ValueId Writer::in_chunk(int64_t chunk, ValueId yes, ValueId no) {
  const Shape shape = step_.type(yes).shape;  // a copy: new values may move the program's own
  return step_.select(step_.broadcast(is_chunk(chunk), shape, {}), yes, no);
}

ValueId Writer::held(ValueId value, int64_t chunk, double fill) {
  auto [known, is_new] = held_.try_emplace({value, chunk, fill}, ir::kNoValue);
  if (!is_new) return known->second;
  const ValueId state = add_state("latched", start_.constant(fill, step_.type(value)));
  known->second = in_chunk(chunk, value, state);
  set_next(state, known->second);
  return known->second;
}

// ---- elements with a negative index

/// i64[]: the number of the chunk.
ValueId Writer::counter() {
  const Type scalar{DType::kI64, {}};
  if (counter_ == ir::kNoValue) {
    counter_ = add_state("chunks", start_.constant(0, scalar));
    set_next(counter_, step_.add(counter_, step_.constant(1, scalar)));
  }
  return counter_;
}

ValueId Writer::positions(int64_t elements, int64_t shift) {
  auto [known, is_new] = positions_.try_emplace({elements, shift}, ir::kNoValue);
  if (!is_new) return known->second;
  const Type scalar{DType::kI64, {}}, all{DType::kI64, {elements}};
  const ValueId first = step_.sub(step_.mul(counter(), step_.constant(static_cast<double>(elements), scalar)),
                                  step_.constant(static_cast<double>(shift), scalar));
  const ValueId numbers = step_.emit(ir::OpCode::kIota, {}, {{"dim", int64_t{0}}}, &all);
  return known->second = step_.add(step_.broadcast(first, all.shape, {}), numbers);
}

ValueId Writer::mask(int64_t elements, int64_t shift) {
  auto [known, is_new] = masks_.try_emplace({elements, shift}, ir::kNoValue);
  if (!is_new) return known->second;
  const ValueId numbers = positions(elements, shift);
  return known->second = step_.binary(ir::OpCode::kGe, numbers, step_.constant(0, {DType::kI64, {elements}}));
}

Stream Writer::masked(const Stream& timed, double fill) {
  const int64_t missing = timed.shift + timed.lead();
  if (missing <= 0) return timed;
  Stream result = apart(timed);
  const Type type = step_.type(result.step);
  const ValueId is_real =
      step_.broadcast(mask(result.per_chunk, missing), type.shape, {static_cast<int64_t>(result.time.dim)});
  result.step = step_.select(is_real, result.step, step_.constant(fill, type));
  result.origin = new_origin();
  return merged(result, timed.time);
}

// ---- state

ValueId Writer::add_state(std::string name, ValueId initial) {
  const ValueId value = step_program_.new_value(start_.type(initial));
  state_at_[value] = states_.size();
  states_.push_back({fmt::format("{}{}", name, states_.size()), value, initial, value});
  return value;
}

Streamed Writer::finish(const std::vector<ValueId>& outputs) {
  Streamed result;
  result.chunk = chunk_;
  std::vector<ValueId>& args = step_program_.body.args;
  for (const State& state : states_) {
    result.states.push_back(state.name);
    args.push_back(state.value);
    step_program_.body.results.push_back(state.next);
    start_program_.body.results.push_back(state.initial);
  }
  args.insert(args.end(), inputs_.begin(), inputs_.end());
  for (auto [input, constant] : constants_) {
    args.push_back(input);
    result.constants.push_back(constant);
    if (!constant.is_weight) result.constants.back().number += states_.size();
  }
  auto& results = step_program_.body.results;
  results.insert(results.end(), outputs.begin(), outputs.end());
  start_program_.body.args = weights_;
  start_program_.body.results.insert(start_program_.body.results.end(), derived_.begin(), derived_.end());
  result.step = std::move(step_program_);
  result.start = std::move(start_program_);
  return result;
}

}  // namespace weft::streaming
