#include "passes/rolling/step_match.h"

#include <algorithm>
#include <tuple>

#include "passes/rolling/likeness.h"

namespace weft::passes {

using ir::kNoValue;
using ir::Op;
using ir::OpCode;
using ir::Type;
using ir::ValueId;

namespace {

/// Ops that cost nothing beside their readers: each body has its own copies.
bool is_free(const Op* op) { return op && ir::traits_of(op->code).cost == ir::Cost::kNothing; }

/// Whether the op, or one in its regions, multiplies by the value, as it is or transposed.
bool multiplies_by(const Op& op, ValueId v) {
  if (ir::weights_of(op) == v) return true;
  for (const ir::Block& region : op.regions)
    for (const Op& each : region.ops) {
      if (multiplies_by(each, v)) return true;
      if (ir::elements_of(each.code) != ir::Elements::kPermuted || each.operands[0] != v) continue;
      for (const Op& reader : region.ops)
        if (multiplies_by(reader, each.results[0])) return true;
    }
  return false;
}

}  // namespace

bool StepMatch::run() {
  for (size_t offset = 0; offset < steps_.period; ++offset)
    if (!match_forms(offset)) return false;
  for (size_t offset = 0; offset < steps_.period; ++offset)
    if (!match_op(offset)) return false;
  for (size_t i = 0; i < pending_.size(); ++i) {
    Tuple tuple = pending_[i].tuple;
    ValueId out = unify(tuple);
    if (out == kNoValue) return fail(std::move(tuple));
    body.parts.carries[pending_[i].carry].out = out;
  }
  return true;
}

bool StepMatch::match_forms(size_t offset) {
  const Op& model = sequence_.op(steps_.start + offset);
  for (ValueId result : model.results)
    if (program_.type(result).rank() >= ir::kMaxRank) return false;
  for (size_t step = 1; step < steps_.count; ++step)
    if (!same_form(program_, model, sequence_.op(steps_.start + step * steps_.period + offset))) return false;
  return true;
}

bool StepMatch::match_op(size_t offset) {
  size_t first = steps_.start + offset;
  const Op& model = sequence_.op(first);
  Substitution map;
  std::vector<ValueId> operands;
  const std::vector<ValueId> model_reads = reads(model);
  for (size_t i = 0; i < sequence_.read_count(first); ++i) {
    Tuple tuple(steps_.count);
    for (size_t step = 0; step < steps_.count; ++step) tuple[step] = sequence_.read(first + step * steps_.period, i);
    is_weight_ = multiplies_by(model, model_reads[i]);
    ValueId value = unify(tuple);
    if (value == kNoValue) return fail(std::move(tuple));
    if (i < model.operands.size()) {
      operands.push_back(value);
      continue;
    }
    // Captured values of a region are replaced by name, so one name must stand for one value.
    ValueId captured = model_reads[i];
    if (map.contains(captured) && map(captured) != value) return fail(std::move(tuple));
    map.set(captured, value);
  }
  is_weight_ = false;
  Op copy = clone(program_, model, map);
  copy.operands = std::move(operands);
  body.results.push_back(copy.results);
  body.parts.ops.push_back(std::move(copy));
  return true;
}

ValueId StepMatch::unify(const Tuple& tuple) {
  size_t key = tuple[0];
  if (tuple.size() > 1) mix(key, tuple[1]);
  for (const Known& known : known_[key])
    if (known.tuple.size() >= tuple.size() && std::equal(tuple.begin(), tuple.end(), known.tuple.begin()))
      return known.value;
  ValueId value = unify_new(tuple);
  if (value == kNoValue) return kNoValue;
  known_[key].push_back({tuple, value});
  known_keys_.push_back(key);
  return value;
}

ValueId StepMatch::unify_new(const Tuple& tuple) {
  if (ValueId value = captured(tuple); value != kNoValue) return value;
  if (ValueId value = of_the_same_step(tuple); value != kNoValue) return value;
  if (is_of_the_step_before(tuple)) return carry(tuple);
  if (ValueId value = rows(tuple); value != kNoValue) return value;
  if (ValueId value = floating(tuple); value != kNoValue) return value;
  if (ValueId value = slices(tuple, program_.type(tuple[0]), /*is_row=*/false); value != kNoValue) return value;
  if (ValueId value = choice(tuple); value != kNoValue) return value;
  if (std::ranges::any_of(tuple, [&](ValueId v) { return is_inside(v); })) return carry(tuple);
  if (ValueId value = numbers(tuple); value != kNoValue) return value;
  return values(tuple);
}

ValueId StepMatch::captured(const Tuple& tuple) {
  ValueId first = tuple[0];
  if (!std::ranges::all_of(tuple, [&](ValueId v) { return v == first; }) || is_inside(first)) return kNoValue;
  return is_free(sequence_.floating(first)) ? kNoValue : first;
}

ValueId StepMatch::of_the_same_step(const Tuple& tuple) const {
  int64_t first = sequence_.place(tuple[0]);
  if (!steps_.contains(first)) return kNoValue;
  for (size_t step = 0; step < tuple.size(); ++step) {
    int64_t place = first + static_cast<int64_t>(step * steps_.period);
    if (sequence_.place(tuple[step]) != place || sequence_.result(tuple[step]) != sequence_.result(tuple[0]))
      return kNoValue;
  }
  if (steps_.step(first) != 0) return kNoValue;
  const auto& known = body.results;
  size_t offset = steps_.offset(first);
  return offset < known.size() ? known[offset][sequence_.result(tuple[0])] : kNoValue;
}

bool StepMatch::is_of_the_step_before(const Tuple& tuple) const {
  if (tuple.size() < 2 || is_inside(tuple[0])) return false;
  int64_t first = sequence_.place(tuple[1]);
  if (!steps_.contains(first) || steps_.step(first) != 0) return false;
  for (size_t step = 1; step < tuple.size(); ++step) {
    int64_t place = first + static_cast<int64_t>((step - 1) * steps_.period);
    if (sequence_.place(tuple[step]) != place || sequence_.result(tuple[step]) != sequence_.result(tuple[1]))
      return false;
  }
  return true;
}

/// A carry: a value from outside in the first step. The values that the steps yield for it are matched last, when all
/// ops are in the body.
ValueId StepMatch::carry(const Tuple& tuple) {
  if (tuple.size() < 2 || is_inside(tuple[0])) return kNoValue;
  ValueId arg = program_.new_value(Type(program_.type(tuple[0])));
  pending_.push_back({body.parts.carries.size(), Tuple(tuple.begin() + 1, tuple.end())});
  body.parts.carries.push_back({tuple[0], arg, kNoValue, kNoValue});
  return arg;
}

/// A carry in place of which some steps after the first read a value from outside, which comes from an x.
ValueId StepMatch::choice(const Tuple& tuple) {
  if (tuple.size() < steps_.count || is_inside(tuple[0]) || is_weight_) return kNoValue;
  Tuple before = tuple;
  Tuple outside = tuple;
  XSource chosen{.kind = XSource::Kind::kNumbers};
  int64_t first = -1;  // the place in the first step that computes the carry
  size_t result = 0;
  for (size_t step = 1; step < tuple.size() && first < 0; ++step) {
    int64_t place = sequence_.place(tuple[step]);
    if (!steps_.contains(place)) continue;
    first = place - static_cast<int64_t>((step - 1) * steps_.period);
    result = sequence_.result(tuple[step]);
  }
  if (!steps_.contains(first) || steps_.step(first) != 0) return kNoValue;
  for (size_t step = 0; step < tuple.size(); ++step) {
    bool is_outside = !is_inside(tuple[step]);
    chosen.numbers.push_back(is_outside ? 1 : 0);
    if (!is_outside) outside[step] = outside[step - 1];  // not read
    if (step == 0) continue;
    before[step] = sequence_.op(static_cast<size_t>(first) + (step - 1) * steps_.period).results[result];
    if (!is_outside && tuple[step] != before[step]) return kNoValue;
  }
  if (std::ranges::count(chosen.numbers, 1) < 2) return kNoValue;
  ValueId own = unify(before);
  ValueId given = unify(outside);
  if (own == kNoValue || given == kNoValue) return kNoValue;
  Type type = program_.type(tuple[0]);
  ValueId which = add_x(std::move(chosen), Type{DType::kBool, {}});
  if (type.rank() > 0)
    which = append(OpCode::kBroadcast, {which}, {{"dims", std::vector<int64_t>{}}}, Type{DType::kBool, type.shape});
  return append(OpCode::kSelect, {which, given, own}, {}, std::move(type));
}

ValueId StepMatch::append(OpCode code, std::vector<ValueId> operands, ir::Attrs attrs, Type type) {
  ValueId result = program_.new_value(std::move(type));
  body.parts.ops.push_back(Op{code, std::move(operands), {result}, std::move(attrs), {}});
  return result;
}

ValueId StepMatch::append(const Op& model, ValueId operand) {
  std::vector<ValueId> operands;
  if (operand != kNoValue) operands.push_back(operand);
  return append(model.code, std::move(operands), model.attrs, Type(program_.type(model.results[0])));
}

ValueId StepMatch::floating(const Tuple& tuple) {
  const Op* model = sequence_.floating(tuple[0]);
  if (!model) return kNoValue;
  Tuple sources;
  for (ValueId v : tuple) {
    const Op* op = sequence_.floating(v);
    if (!op || (op != model && !same_form(program_, *op, *model))) return kNoValue;
    if (!op->operands.empty()) sources.push_back(sequence_.source(*op));
  }
  if (sources.empty()) return append(*model, kNoValue);
  Mark before = mark();
  ValueId source = unify(sources);
  if (source == kNoValue) {
    undo(before);
    return kNoValue;
  }
  return append(*model, source);
}

/// Slices of size 1 that lose their dim at once, as x[t] does.
ValueId StepMatch::rows(const Tuple& tuple) {
  Tuple slices_of;
  for (ValueId v : tuple) {
    const Op* op = sequence_.floating(v);
    if (!op || !ir::is_alias(op->code)) return kNoValue;
    ValueId source = sequence_.source(*op);
    const Op* slice = sequence_.floating(source);
    if (!slice || !ir::is_range(slice->code) || !inserts_dim(program_, v, source, slice->attr<int64_t>("dim")))
      return kNoValue;
    slices_of.push_back(source);
  }
  return slices(slices_of, program_.type(tuple[0]), /*is_row=*/true);
}

ValueId StepMatch::slices(const Tuple& tuple, const Type& type, bool is_row) {
  const Op* model = sequence_.floating(tuple[0]);
  if (!model || !ir::is_range(model->code) || tuple.size() < 2) return kNoValue;
  const std::optional<ir::SliceRange> range_of_first = ir::constant_range(*model);
  if (!range_of_first) return kNoValue;
  const ir::SliceRange first = *range_of_first;
  ValueId whole = sequence_.source(*model);
  if (!program_.type(whole).shape[static_cast<size_t>(first.dim)].is_constant()) return kNoValue;
  if (is_inside(whole) || program_.type(whole).rank() >= ir::kMaxRank) return kNoValue;
  XSource source{
      .kind = XSource::Kind::kSlices, .whole = whole, .dim = first.dim, .first = first.start, .is_row = is_row};
  source.extent = first.limit - first.start;
  for (size_t step = 1; step < tuple.size(); ++step) {
    const Op* op = sequence_.floating(tuple[step]);
    if (!op || !ir::is_range(op->code)) return kNoValue;
    const std::optional<ir::SliceRange> range = ir::constant_range(*op);
    if (!range || range->dim != first.dim || range->limit - range->start != source.extent) return kNoValue;
    if (step == 1) source.stride = range->start - first.start;
    if (range->start != first.start + source.stride * static_cast<int64_t>(step)) return kNoValue;
    if (!same_outside(sequence_.source(*op), whole)) return kNoValue;
  }
  // The slices are one stack: the dim of the whole is split into `count` times `stride`, and of each `stride` elements
  // `extent` are read.
  auto count = static_cast<int64_t>(steps_.count);
  int64_t width = std::abs(source.stride);
  int64_t low = source.stride > 0 ? source.first : source.first + source.stride * (count - 1);
  int64_t size = program_.type(whole).shape[static_cast<size_t>(source.dim)].constant();
  int64_t spare = width - source.extent;
  if (source.stride == 0 || spare < 0 || low < 0 || low + width * count - spare > size) return kNoValue;
  if (low + width * count > size && low < spare) return kNoValue;
  return add_x(std::move(source), type);
}

/// Constants of one type: a number for each step, repeated in the body.
ValueId StepMatch::numbers(const Tuple& tuple) {
  XSource source{.kind = XSource::Kind::kNumbers};
  for (ValueId v : tuple) {
    const Op* op = sequence_.floating(v);
    const std::optional<double> number = op ? ir::constant_value(*op) : std::nullopt;
    if (!number) return kNoValue;
    source.numbers.push_back(*number);
  }
  source.numbers.resize(steps_.count, source.numbers.back());
  Type type = program_.type(tuple[0]);
  ValueId x = add_x(std::move(source), Type{type.dtype, {}});
  if (type.rank() == 0) return x;
  return append(OpCode::kBroadcast, {x}, {{"dims", std::vector<int64_t>{}}}, std::move(type));
}

ValueId StepMatch::values(const Tuple& tuple) {
  if (is_weight_ || program_.type(tuple[0]).rank() >= ir::kMaxRank) return kNoValue;
  XSource source{.kind = XSource::Kind::kValues, .values = tuple};
  source.values.resize(steps_.count, tuple.back());  // nothing reads a carry's value after the last step
  return add_x(std::move(source), program_.type(tuple[0]));
}

ValueId StepMatch::add_x(XSource source, const Type& type) {
  ValueId arg = program_.new_value(Type(type));
  body.parts.xs.push_back({kNoValue, arg});
  body.sources.push_back(std::move(source));
  return arg;
}

bool StepMatch::is_inside(ValueId v) const { return steps_.contains(sequence_.place(sequence_.root(v))); }

bool StepMatch::same_outside(ValueId a, ValueId b) const {
  while (a != b) {
    const Op* x = sequence_.floating(a);
    const Op* y = sequence_.floating(b);
    if (!x || !y || x->operands.empty() || !same_form(program_, *x, *y)) return false;
    a = sequence_.source(*x);
    b = sequence_.source(*y);
  }
  return true;
}

/// A hash of how a value relates to the step that reads it, such as "result 0 of place 3 of the step before". Steps
/// with the same body have equal hashes. With `tells_outside_apart`, different values from outside have different
/// hashes.
size_t StepMatch::relation(ValueId v, size_t step, bool tells_outside_apart) const {
  size_t hash = 0;
  while (const Op* op = sequence_.floating(v)) {
    mix(hash, static_cast<size_t>(op->code));
    if (op->operands.empty()) return tells_outside_apart ? hash : 0;
    v = sequence_.source(*op);
  }
  int64_t place = sequence_.place(v);
  if (!steps_.contains(place)) return tells_outside_apart ? v : 0;
  mix(hash, step - steps_.step(place));
  mix(hash, steps_.offset(place));
  mix(hash, sequence_.result(v));
  return hash;
}

bool StepMatch::fail(Tuple tuple) {
  failed_ = std::move(tuple);
  return false;
}

Steps StepMatch::narrower() const {
  Steps none{steps_.start, steps_.period, 0};
  size_t begin = 0;
  size_t end = 0;
  for (bool apart : {false, true}) {
    begin = end = 0;
    for (size_t from = 0; from < failed_.size();) {
      size_t wanted = relation(failed_[from], from, apart);
      size_t to = from + 1;
      while (to < failed_.size() && relation(failed_[to], to, apart) == wanted) ++to;
      if (to - from > end - begin) std::tie(begin, end) = std::pair(from, to);
      from = to;
    }
    if (end - begin < failed_.size()) break;
  }
  if (end - begin == failed_.size()) return none;
  // In the first step a carry may be any value from outside.
  auto step_of = [&](size_t i) {
    int64_t place = sequence_.place(sequence_.root(failed_[i]));
    return steps_.contains(place) ? static_cast<int64_t>(steps_.step(place)) : -1;
  };
  auto first = static_cast<int64_t>(begin);
  if (begin > 0 && step_of(begin) >= 0 && step_of(begin) < first && step_of(begin - 1) < first - 1) --begin;
  end += steps_.count - failed_.size();  // a carry's tuple has no value for the last step
  if (begin == 0 && end == steps_.count) return none;
  return {steps_.start + begin * steps_.period, steps_.period, end - begin};
}

StepMatch::Mark StepMatch::mark() const {
  return {body.parts.ops.size(), body.parts.carries.size(), body.parts.xs.size(), pending_.size(), known_keys_.size()};
}

void StepMatch::undo(const Mark& mark) {
  body.parts.ops.resize(mark.ops);
  body.parts.carries.resize(mark.carries);
  body.parts.xs.resize(mark.xs);
  body.sources.resize(mark.xs);
  pending_.resize(mark.pending);
  while (known_keys_.size() > mark.known) {
    known_[known_keys_.back()].pop_back();
    known_keys_.pop_back();
  }
}

}  // namespace weft::passes
