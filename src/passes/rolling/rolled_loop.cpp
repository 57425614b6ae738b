#include "passes/rolling/rolled_loop.h"

#include <algorithm>
#include <cmath>

#include "passes/rolling/likeness.h"

namespace weft::passes {

using ir::Attrs;
using ir::Dim;
using ir::kNoValue;
using ir::Op;
using ir::OpCode;
using ir::Shape;
using ir::Type;
using ir::ValueId;
using Dims = std::vector<int64_t>;

RolledWriter::RolledWriter(ir::Program& program, OpSequence& sequence)
    : program_(program), sequence_(sequence), builder_(program, block_), loop_at_(sequence.size(), -1) {
  sequence_.element = [this](ValueId v) { return element(v); };
}

size_t RolledWriter::loop_index(ValueId v) const {
  return static_cast<size_t>(loop_at_[static_cast<size_t>(sequence_.place(v))]);
}

ValueId RolledWriter::body_value(const Loop& loop, ValueId v) const {
  return loop.results[loop.steps.offset(sequence_.place(v))][sequence_.result(v)];
}

int64_t RolledWriter::position(const Loop& loop, size_t step) const {
  return static_cast<int64_t>(loop.parts.reverse ? loop.steps.count - 1 - step : step);
}

/// A slice of the stack of all steps' values.
ValueId RolledWriter::element(ValueId v) {
  auto [it, is_new] = elements_.try_emplace(v, kNoValue);
  if (!is_new) return it->second;
  Loop& loop = loop_of(v);
  ValueId stack = loop.parts.stack_of(program_, body_value(loop, v));
  int64_t at = position(loop, loop.steps.step(sequence_.place(v)));
  Type type = program_.type(stack);
  type.shape[0] = Dim(1);
  ValueId slice = sequence_.add_floating(OpCode::kSlice, stack, {{"dim", int64_t{0}}, {"start", at}, {"limit", at + 1}},
                                         std::move(type));
  return elements_[v] = sequence_.add_floating(OpCode::kReshape, slice, {}, Type(program_.type(v)));
}

/// The carry after the last step, if the value is that carry. Such a value needs no stack.
std::optional<ValueId> RolledWriter::last_carry(ValueId v) const {
  const Loop& loop = loops_[loop_index(v)];
  if (loop.steps.step(sequence_.place(v)) + 1 != loop.steps.count) return std::nullopt;
  ValueId out = body_value(loop, v);
  for (const ScanParts::Carry& carry : loop.parts.carries)
    if (carry.out == out) return carry.result;
  return std::nullopt;
}

ValueId RolledWriter::written(ValueId v) {
  if (auto it = replaced_.find(v); it != replaced_.end()) return it->second;
  if (sequence_.is_rolled(v)) {
    if (std::optional<ValueId> carry = last_carry(v)) return *carry;
    v = element(v);
  }
  const Op* op = sequence_.floating(v);
  if (!op || written_.contains(v)) return v;
  Op copy = *op;
  for (ValueId& operand : copy.operands) operand = written(operand);
  block_.ops.push_back(std::move(copy));
  written_.insert(v);
  return v;
}

void RolledWriter::write(const Op& op) {
  Op copy = op;
  if (ir::is_join(copy.code)) join_runs(copy);
  if (ir::is_join(copy.code) && copy.operands.size() == 1) {
    replaced_[copy.results[0]] = written(copy.operands[0]);
    return;
  }
  Substitution map;
  for (ValueId v : reads(copy)) map.set(v, written(v));
  substitute(copy, map);
  block_.ops.push_back(std::move(copy));
}

void RolledWriter::write(StepBody&& body, const Steps& steps) {
  Loop loop{steps, std::move(body.parts), std::move(body.results), 0};
  auto count = static_cast<int64_t>(steps.count);
  loop.parts.length = Dim(count);
  loop.parts.reverse = runs_backwards(body);
  for (ScanParts::Carry& carry : loop.parts.carries) {
    carry.init = written(carry.init);
    carry.result = program_.new_value(Type(program_.type(carry.init)));
  }
  for (size_t i = 0; i < loop.parts.xs.size(); ++i) {
    ScanParts::X& x = loop.parts.xs[i];
    x.stack = stack(body.sources[i], program_.type(x.arg), count, loop.parts.reverse);
  }
  ValueSet inside;
  for (const ScanParts::Carry& carry : loop.parts.carries) inside.insert(carry.arg);
  for (const ScanParts::X& x : loop.parts.xs) inside.insert(x.arg);
  Substitution map;
  for (Op& op : loop.parts.ops) {
    for (ValueId v : reads(op))
      if (!inside.contains(v)) map.set(v, written(v));
    for (ValueId v : op.results) inside.insert(v);
    substitute(op, map);
  }
  for (ScanParts::Carry& carry : loop.parts.carries)
    if (!inside.contains(carry.out)) carry.out = written(carry.out);
  loop.index = block_.ops.size();
  block_.ops.push_back(Op{OpCode::kScan, {}, {}, {}, {}});
  for (size_t place = steps.start; place < steps.end(); ++place) loop_at_[place] = static_cast<int32_t>(loops_.size());
  loops_.push_back(std::move(loop));
  sequence_.set_rolled(steps.start, steps.end());
}

std::vector<Op> RolledWriter::finish() {
  for (Loop& loop : loops_) block_.ops[loop.index] = std::move(loop.parts).build();
  return std::move(block_.ops);
}

// ---- xs

/// A loop that reads its xs from the last to the first is a scan in reverse.
bool RolledWriter::runs_backwards(const StepBody& body) const {
  int64_t votes = 0;
  for (const XSource& source : body.sources)
    if (source.kind == XSource::Kind::kSlices) votes += source.stride < 0 ? -1 : 1;
  return votes < 0;
}

ValueId RolledWriter::stack(const XSource& source, const Type& step, int64_t count, bool reverse) {
  switch (source.kind) {
    case XSource::Kind::kSlices:
      return stack_of_slices(source, count, reverse);
    case XSource::Kind::kNumbers: {
      std::vector<double> numbers = source.numbers;
      if (reverse) std::ranges::reverse(numbers);
      return stack_of_numbers(std::move(numbers), step.dtype);
    }
    case XSource::Kind::kValues: {
      std::vector<ValueId> values = source.values;
      if (reverse) std::ranges::reverse(values);
      return stack_of_values(std::move(values), step);
    }
  }
  internal_error("no such source of an x");
}

/// A stack of slices at equal distances, as views: the dim is split in two, `count` times the stride, and the first of
/// the two goes to the front.
ValueId RolledWriter::stack_of_slices(const XSource& source, int64_t count, bool reverse) {
  ValueId value = written(source.whole);
  auto dim = static_cast<size_t>(source.dim);
  int64_t size = program_.type(value).shape[dim].constant();
  int64_t width = std::abs(source.stride);
  int64_t low = source.stride > 0 ? source.first : source.first + source.stride * (count - 1);
  int64_t offset = low + width * count > size ? width - source.extent : 0;
  low -= offset;
  if (low != 0 || width * count != size) value = builder_.slice(value, source.dim, low, low + width * count);
  bool splits = width != 1 || !source.is_row;
  if (splits) {
    Shape shape = program_.type(value).shape;
    shape[dim] = Dim(width);
    shape.insert(shape.begin() + source.dim, Dim(count));
    value = builder_.reshape(value, shape);
    if (source.extent != width) value = builder_.slice(value, source.dim + 1, offset, offset + source.extent);
  }
  if (dim > 0) {
    Dims perm = {source.dim};
    for (int64_t i = 0; i < program_.type(value).rank(); ++i)
      if (i != source.dim) perm.push_back(i);
    value = builder_.transpose(value, std::move(perm));
  }
  if (splits && source.is_row) {
    Shape shape = program_.type(value).shape;
    shape.erase(shape.begin() + source.dim + 1);
    value = builder_.reshape(value, shape);
  }
  if ((source.stride < 0) != reverse) value = builder_.emit(OpCode::kReverse, {value}, {{"dim", int64_t{0}}});
  return value;
}

namespace {

/// Numbers of which number i is exactly first + i * stride.
struct Even {
  int64_t first = 0, stride = 0;
};

std::optional<Even> evenly_spaced(const std::vector<double>& numbers) {
  constexpr double kExact = 1LL << 52;
  for (double number : numbers)
    if (!(std::abs(number) < kExact) || number != std::trunc(number) || (number == 0 && std::signbit(number)))
      return std::nullopt;
  Even even{static_cast<int64_t>(numbers[0]), static_cast<int64_t>(numbers[1]) - static_cast<int64_t>(numbers[0])};
  for (size_t i = 0; i < numbers.size(); ++i)
    if (static_cast<int64_t>(numbers[i]) != even.first + even.stride * static_cast<int64_t>(i)) return std::nullopt;
  return even;
}

/// Numbers that count the steps are computed from iota. Recognised are t, t / n and t * c.
struct Counter {
  Even even;
  double divisor = 1, factor = 1;
};

std::optional<Counter> counter(const std::vector<double>& numbers) {
  if (std::optional<Even> even = evenly_spaced(numbers)) return Counter{*even};
  double stride = numbers[1] - numbers[0];
  auto n = static_cast<double>(numbers.size());
  for (double divisor : {n, n - 1, n + 1, std::round(1 / stride)}) {
    std::vector<double> whole;
    for (double number : numbers) whole.push_back(std::round(number * divisor));
    std::optional<Even> even = evenly_spaced(whole);
    if (!even) continue;
    bool exact = true;
    for (size_t i = 0; i < numbers.size(); ++i) exact = exact && whole[i] / divisor == numbers[i];
    if (exact) return Counter{.even = *even, .divisor = divisor};
  }
  std::vector<double> whole;
  for (double number : numbers) whole.push_back(std::round(number / stride));
  std::optional<Even> even = evenly_spaced(whole);
  if (!even) return std::nullopt;
  for (size_t i = 0; i < numbers.size(); ++i)
    if (whole[i] * stride != numbers[i]) return std::nullopt;
  return Counter{.even = *even, .factor = stride};
}

}  // namespace

ValueId RolledWriter::stack_of_numbers(std::vector<double> numbers, DType dtype) {
  Dim length(static_cast<int64_t>(numbers.size()));
  if (std::optional<Counter> c = dtype == DType::kBool ? std::nullopt : counter(numbers)) {
    Type whole{DType::kI64, {length}};
    Type exact{DType::kF64, {length}};
    ValueId value = builder_.emit(OpCode::kIota, {}, {{"dim", int64_t{0}}}, &whole);
    if (c->even.stride != 1) value = builder_.mul(value, builder_.constant(static_cast<double>(c->even.stride), whole));
    if (c->even.first != 0) value = builder_.add(value, builder_.constant(static_cast<double>(c->even.first), whole));
    if (c->divisor != 1 || c->factor != 1) value = builder_.cast(value, DType::kF64);
    if (c->divisor != 1) value = builder_.div(value, builder_.constant(c->divisor, exact));
    if (c->factor != 1) value = builder_.mul(value, builder_.constant(c->factor, exact));
    return builder_.cast(value, dtype);
  }
  std::vector<ValueId> parts;
  for (double number : numbers) parts.push_back(builder_.constant(number, Type{dtype, {Dim(1)}}));
  return builder_.concat(std::move(parts), 0);
}

ValueId RolledWriter::stack_of_values(std::vector<ValueId> values, const Type& step) {
  Shape one = step.shape;
  one.insert(one.begin(), Dim(1));
  std::vector<ValueId> parts;
  for (ValueId v : values) parts.push_back(builder_.reshape(written(v), one));
  return builder_.concat(std::move(parts), 0);
}

// ---- concatenations of all steps' values

std::optional<RolledWriter::Member> RolledWriter::member(ValueId v) const {
  while (!sequence_.is_rolled(v)) {
    const Op* op = sequence_.floating(v);
    if (!op || op->operands.empty()) return std::nullopt;
    v = op->operands[0];
  }
  size_t loop = loop_index(v);
  return Member{loop, loops_[loop].steps.step(sequence_.place(v))};
}

/// Whether the same floating ops make the two values from the same value of a step.
bool RolledWriter::alike(ValueId a, ValueId b) const {
  while (true) {
    bool rolled = sequence_.is_rolled(a);
    if (rolled != sequence_.is_rolled(b)) return false;
    if (rolled) {
      const Loop& loop = loops_[loop_index(a)];
      return body_value(loop, a) == body_value(loop, b);
    }
    const Op* x = sequence_.floating(a);
    const Op* y = sequence_.floating(b);
    if (!same_form(program_, *x, *y)) return false;
    a = x->operands[0];
    b = y->operands[0];
  }
}

RolledWriter::Run RolledWriter::run_at(const std::vector<ValueId>& operands, size_t first) const {
  Run none{first, 0, 0, 0, 0, 0};
  auto at = [&](size_t i) { return i < operands.size() ? member(operands[i]) : std::nullopt; };
  std::optional<Member> start = at(first);
  if (!start) return none;
  size_t width = 1;
  while (at(first + width) == start) ++width;
  std::optional<Member> next = at(first + width);
  if (!next || next->loop != start->loop) return none;
  auto difference = static_cast<int64_t>(next->step) - static_cast<int64_t>(start->step);
  auto fits = [&](size_t group) {
    auto step = static_cast<int64_t>(start->step) + difference * static_cast<int64_t>(group);
    for (size_t i = 0; i < width; ++i) {
      std::optional<Member> each = at(first + group * width + i);
      if (!each || each->loop != start->loop || static_cast<int64_t>(each->step) != step) return false;
      if (!alike(operands[first + i], operands[first + group * width + i])) return false;
    }
    return true;
  };
  size_t count = 1;
  while (fits(count)) ++count;
  if (count < 2) return none;
  const Loop& loop = loops_[start->loop];
  int64_t stride = loop.parts.reverse ? -difference : difference;
  return {first, width, count, start->loop, position(loop, start->step), stride};
}

void RolledWriter::join_runs(Op& concat) {
  auto dim = concat.attr<int64_t>("dim");
  std::vector<ValueId> joined;
  const std::vector<ValueId> operands = concat.operands;
  for (size_t i = 0; i < operands.size();) {
    Run run = run_at(operands, i);
    ValueId value = run.count < 2 ? kNoValue : join(operands, run, dim);
    joined.push_back(value == kNoValue ? operands[i] : value);
    i += value == kNoValue ? 1 : run.width * run.count;
  }
  concat.operands = std::move(joined);
}

/// The value in the loop's body; floating ops are repeated there.
ValueId RolledWriter::in_body(Loop& loop, ValueId v) {
  if (sequence_.is_rolled(v)) return body_value(loop, v);
  const Op& op = *sequence_.floating(v);
  ValueId source = in_body(loop, op.operands[0]);
  ValueId copy = program_.new_value(Type(program_.type(v)));
  loop.parts.ops.push_back(Op{op.code, {source}, {copy}, op.attrs, {}});
  return copy;
}

/// The concatenation of the run's operands, from the stack of all steps.
ValueId RolledWriter::join(const std::vector<ValueId>& operands, const Run& run, int64_t dim) {
  Loop& loop = loops_[run.loop];
  ValueId first = operands[run.first];
  Type part = program_.type(first);
  if (part.rank() >= ir::kMaxRank) return kNoValue;
  const Op* last = sequence_.floating(first);
  bool is_stacking =
      run.width == 1 && last && ir::is_alias(last->code) && inserts_dim(program_, last->operands[0], first, dim);
  ValueId out = in_body(loop, is_stacking ? last->operands[0] : first);
  auto at = static_cast<size_t>(dim);
  if (run.width > 1) {
    Op concat{OpCode::kConcat, {out}, {}, {{"dim", dim}}, {}};
    for (size_t i = 1; i < run.width; ++i) concat.operands.push_back(in_body(loop, operands[run.first + i]));
    Dim size(0);
    for (size_t i = 0; i < run.width; ++i) size = size + program_.type(operands[run.first + i]).shape[at];
    part.shape[at] = size;
    out = program_.new_value(Type(part));
    concat.results.push_back(out);
    loop.parts.ops.push_back(std::move(concat));
  }
  size_t stacks = loop.parts.ys.size();
  ValueId stack = loop.parts.stack_of(program_, out);
  ValueId value = rows(stack, run.from, run.stride, static_cast<int64_t>(run.count));
  if (value == kNoValue) {
    loop.parts.ys.resize(stacks);
    return kNoValue;
  }
  if (dim > 0) {
    Dims perm;
    for (int64_t i = 1; i < program_.type(value).rank(); ++i) perm.push_back(i);
    perm.insert(perm.begin() + dim, 0);
    value = builder_.transpose(value, std::move(perm));
  }
  part.shape[at] = part.shape[at] * Dim(static_cast<int64_t>(run.count));
  return program_.type(value).shape == part.shape ? value : builder_.reshape(value, part.shape);
}

/// Rows first, first + stride, ... of a stack; kNoValue if it must be written row by row.
ValueId RolledWriter::rows(ValueId stack, int64_t first, int64_t stride, int64_t count) {
  if (stride == 0) return kNoValue;
  int64_t size = program_.type(stack).shape[0].constant();
  int64_t width = std::abs(stride);
  int64_t low = stride > 0 ? first : first + stride * (count - 1);
  int64_t offset = std::max<int64_t>(0, low + width * count - size);
  if (offset > low || offset >= width) return kNoValue;
  low -= offset;
  ValueId value = low == 0 && width * count == size ? stack : builder_.slice(stack, 0, low, low + width * count);
  if (width > 1) {
    Shape shape = program_.type(value).shape;
    shape[0] = Dim(count);
    Shape split = shape;
    split.insert(split.begin() + 1, Dim(width));
    if (static_cast<int64_t>(split.size()) > ir::kMaxRank) return kNoValue;
    value = builder_.slice(builder_.reshape(value, split), 1, offset, offset + 1);
    value = builder_.reshape(value, shape);
  }
  if (stride < 0) value = builder_.emit(OpCode::kReverse, {value}, {{"dim", int64_t{0}}});
  return value;
}

}  // namespace weft::passes
