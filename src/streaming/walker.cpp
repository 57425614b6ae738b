#include "streaming/walker.h"

#include <algorithm>
#include <string_view>

namespace weft::streaming {

using ir::Builder;
using ir::Dim;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Type;
using ir::ValueId;
using Kind = Stream::Kind;

namespace {

constexpr std::string_view kLastEarlier = "reads a last step, or a loop's last carry, at steps before the last one";

bool is_timed_at(const Stream& stream, size_t dim) { return stream.kind == Kind::kTimed && stream.time.dim == dim; }

/// Whether the op costs nothing in a step, so that its result need not be kept as a constant.
bool is_free(const Op& op) {
  const ir::OpTraits& traits = ir::traits_of(op.code);
  return traits.cost == ir::Cost::kNothing || traits.rows == ir::Rows::kFresh || ir::is_alias(op.code);
}

/// Whether the op only moves its operands' elements, perhaps with zeros beside them, and leaves the steps in their
/// order.
bool keeps_steps(OpCode code) {
  const ir::OpTraits& traits = ir::traits_of(code);
  const bool moves = traits.elements != ir::Elements::kComputed || traits.is_join || traits.spreads;
  return moves && traits.elements != ir::Elements::kReversed;
}

Op without_note(const Op& op, std::vector<ValueId> operands) {
  Op copy{op.code, std::move(operands), {}, op.attrs, {}};
  if (auto note = copy.attrs.find(passes::kSourceOperation); note != copy.attrs.end()) copy.attrs.erase(note);
  return copy;
}

std::vector<Type> declared(const Op& op, Type type) {
  if (ir::traits_of(op.code).declares) return {std::move(type)};
  return {};
}

}  // namespace

Walker::Walker(const ir::Program& whole, Writer& writer) : whole_(whole), lengths_(writer.lengths()), writer_(writer) {}

void Walker::add_input(ValueId input, std::optional<size_t> time_dim, int64_t group) {
  const Type& type = whole_.type(input);
  Stream stream;
  if (!time_dim) {
    stream.kind = Kind::kHeld;
    stream.step = writer_.add_input(type);
  } else {
    stream.kind = Kind::kTimed;
    stream.time = {*time_dim, 1, 1, type.shape.at(*time_dim)};
    stream.per_chunk = writer_.chunk();
    stream.origin = writer_.new_origin();
    const ir::Shape chunk = with_size(type.shape, *time_dim, stream.per_chunk);
    if (group == 1) {
      stream.step = writer_.add_input({type.dtype, chunk});
    } else {
      ir::Shape joined = with_size(chunk, *time_dim, stream.per_chunk * group);
      joined.erase(joined.begin() + static_cast<std::ptrdiff_t>(*time_dim) + 1);
      stream.step = writer_.step().reshape(writer_.add_input({type.dtype, joined}), chunk);
    }
  }
  streams_[input] = std::move(stream);
}

void Walker::add_weight(ValueId weight) { streams_[weight] = writer_.add_weight(whole_.type(weight)); }

void Walker::walk() {
  for (const Op& op : whole_.body.ops) {
    try {
      visit(op);
    } catch (const RefusedError&) {
      throw;
    } catch (const Error& error) {
      refuse(op, "can't be streamed: {}", error.what());
    }
  }
}

Walker::Streams Walker::operands_of(const Op& op) {
  Streams operands;
  for (ValueId operand : op.operands) operands.push_back(at(operand));
  return operands;
}

void Walker::visit(const Op& op) {
  if (!op.regions.empty()) return scan(op);
  Streams operands = operands_of(op);
  // Behind the sequence, as a pad by the last step, it is what the end decides.
  const bool is_along = is_along_time(op, operands);
  for (Stream& operand : operands) {
    if (!is_along || operand.kind != Kind::kLast) continue;
    operand.kind = Kind::kEnd;
    operand.needs = "the last step";
    operand.looks_ahead = nullptr;
  }
  const auto has = [&](Kind kind) { return std::ranges::any_of(operands, [&](auto& s) { return s.kind == kind; }); };
  if (has(Kind::kTimed)) {
    for (const Stream& operand : operands) {
      if (operand.kind == Kind::kEnd && ir::traits_of(op.code).batching == ir::Batching::kLookup &&
          is_timed_at(operands[0], 0))
        moved(op, 0, operands[0]);
      if (operand.kind == Kind::kEnd && !is_along) refuse_end(op, operand);
      if (operand.kind == Kind::kLast) refuse(op, "{}", kLastEarlier);
    }
    if (ir::traits_of(op.code).calls_out) return external(op);
    return is_along ? along_time(op, operands) : local(op);
  }
  if (is_length(op)) return end(op, "the number of steps");
  for (const Stream& operand : operands)
    if (operand.kind == Kind::kEnd && !is_along) return end(op, operand.needs, operand.looks_ahead);
  const bool has_time = std::ranges::any_of(op.results, [&](ValueId v) { return lengths_.mentions(whole_.type(v)); });
  if (ir::is_range(op.code) && has_time && operands[0].kind == Kind::kConstant) return positions(op);
  if (!has_time) {
    if (has(Kind::kUniform)) refuse(op, "reads all steps of the sequence at once");
    return plain(op, kind_without_time(op, operands));
  }
  if (has(Kind::kLast)) refuse(op, "{}", kLastEarlier);
  if (is_count(op)) return count(op);
  if (ir::traits_of(op.code).calls_out) return external(op);
  if (is_along) return along_time(op, operands);
  define_uniform(op, operands);
}

/// Defines a value that is the same at each step. Each reader emits the op again, for as many steps as it reads.
void Walker::define_uniform(const Op& op, const Streams& operands) {
  const OpClass op_class = ir::info(op.code).op_class;
  const ValueId weights = ir::weights_of(op);
  const bool is_local = op_class == OpClass::kElementwise || op_class == OpClass::kSource ||
                        op_class == OpClass::kReduction || keeps_steps(op.code) ||
                        (weights != ir::kNoValue && at(weights).kind != Kind::kUniform);
  if (!is_local || op.results.size() != 1) refuse(op, "has no streaming form");
  // The op is emitted for as many steps as its reader reads, so it must not depend on their number.
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].kind == Kind::kUniform &&
        (lengths_.count(whole_.type(op.operands[i])) > 1 || lengths_.count(whole_.type(op.results[0])) > 1))
      refuse(op, "needs all steps at each step");
  for (const auto& [name, attr] : op.attrs)
    if (std::holds_alternative<Dim>(attr)) refuse(op, "takes {} from the number of steps", name);
  Stream stream;
  stream.kind = Kind::kUniform;
  stream.maker = &op;
  for (const Stream& operand : operands) stream.since = std::max(stream.since, known_from(operand));
  define(op, 0, std::move(stream), operands);
}

Kind Walker::kind_without_time(const Op& op, const Streams& operands) {
  Kind kind = Kind::kConstant;
  for (const Stream& operand : operands) {
    if (operand.kind == Kind::kLast) return Kind::kLast;
    if (operand.kind == Kind::kLatched) kind = Kind::kLatched;
    if (operand.kind == Kind::kHeld && kind == Kind::kConstant) kind = Kind::kHeld;
  }
  return kind;
}

/// An op without time. It runs once or, if it depends on inputs that are given with each chunk, in each chunk.
void Walker::plain(const Op& op, Kind kind) {
  const bool is_step = kind != Kind::kConstant;
  passes::Substitution map;
  Streams read = operands_of(op);
  const Streams captured = captures_of(op);
  read.insert(read.end(), captured.begin(), captured.end());
  int64_t since = Stream::kAtStart;
  if (kind == Kind::kLatched)
    for (const Stream& each : read) since = std::max(since, each.kind == Kind::kLatched ? each.since : 0);
  const auto bind = [&](ValueId value) {
    auto known = streams_.find(value);
    if (known == streams_.end() || map.contains(value)) return;
    map.set(value, is_step ? in_chunk(known->second, since) : in_start(op, known->second));
  };
  if (kind == Kind::kLatched && ir::traits_of(op.code).fails != ir::Fails::kNever) harmless_before(op, since, map);
  passes::for_each_use(op, bind);
  ir::Program& program = writer_.program(is_step);
  Op copy = passes::clone(program, op, map);
  // Calls that have a form of the language's own ops get it at the end; of others the note says where they are from.
  const bool stays = is_step && ir::traits_of(op.code).calls_out;
  if (auto note = copy.attrs.find(passes::kSourceOperation); note != copy.attrs.end() && !stays) copy.attrs.erase(note);
  program.body.ops.push_back(std::move(copy));
  for (size_t i = 0; i < op.results.size(); ++i) {
    Stream stream;
    stream.kind = kind;
    stream.since = since;
    stream.is_held = ir::traits_of(op.code).fails == ir::Fails::kNever &&
                     std::ranges::all_of(read, [](auto& s) { return s.kind != Kind::kLatched || s.is_held; });
    (is_step ? stream.step : stream.start) = program.body.ops.back().results[i];
    if (!is_step && is_free(op)) stream.maker = &op;
    define(op, i, std::move(stream), operands_of(op));
  }
}

void Walker::end(const Op& op, std::string needs, const Op* taker) {
  for (size_t i = 0; i < op.results.size(); ++i) {
    Stream stream;
    stream.kind = Kind::kEnd;
    stream.needs = needs;
    stream.looks_ahead = taker;
    streams_[op.results[i]] = std::move(stream);
  }
}

void Walker::refuse_end(const Op& op, const Stream& end) {
  if (end.looks_ahead != nullptr) refuse(*end.looks_ahead, "begins at {}", end.needs);
  refuse(op, "needs {}, which is known only at the end", end.needs);
}

int64_t Walker::whole_length(const Stream& timed) const {
  return lengths_.at(timed.time.length, kChunks * writer_.chunk());
}

int64_t Walker::ahead_of(const Stream& timed) const {
  return whole_length(timed) + timed.shift - kChunks * timed.per_chunk;
}

void Walker::define(const Op& op, size_t result, Stream stream, const Streams& operands) {
  if (stream.kind == Kind::kTimed) {
    if (lengths_.count(whole_.type(op.results.at(result))) != 1)
      refuse(op, "has all steps at each step, as attention has, which needs the whole sequence");
    if (stream.lead() == 0) stream.since = Stream::kAtStart;
    stream.ahead = ahead_of(stream);
    int64_t most = 0, most_known = 0;
    stream.looks_ahead = nullptr;
    for (const Stream& operand : operands) {
      if (operand.kind != Kind::kTimed) continue;
      most = std::max(most, operand.ahead);
      if (operand.looks_ahead == nullptr || operand.ahead <= most_known) continue;
      most_known = operand.ahead;
      stream.looks_ahead = operand.looks_ahead;
    }
    const bool waits = stream.since > 0 && stream.looks_ahead == nullptr;
    if (stream.ahead > most || waits) stream.looks_ahead = &op;
  } else if (stream.kind == Kind::kLast && stream.looks_ahead == nullptr) {
    for (const Stream& operand : operands) {
      if (operand.kind != Kind::kLast || operand.looks_ahead == nullptr) continue;
      // Last carries of sequences of different lengths don't belong to one sequence.
      if (stream.looks_ahead != nullptr && stream.ahead != operand.ahead)
        refuse(op, "joins last carries of sequences of different lengths");
      stream.ahead = operand.ahead;
      stream.settled = std::min(stream.settled, operand.settled);
      stream.looks_ahead = operand.looks_ahead;
    }
  }
  streams_[op.results.at(result)] = std::move(stream);
}

// ---- values in the two programs

int64_t Walker::known_from(const Stream& stream) { return stream.kind == Kind::kHeld ? 0 : stream.since; }

ValueId Walker::in_step(const Stream& free) {
  if (free.kind == Kind::kLatched && !free.is_held) return writer_.held(free.step, free.since);
  if (free.kind != Kind::kConstant) return free.step;
  if (free.maker == nullptr) return writer_.in_step(free);
  std::vector<ValueId> operands;
  for (ValueId operand : free.maker->operands) operands.push_back(in_step(at(operand)));
  const Type type = whole_.type(free.maker->results[0]);
  return writer_.step().append(without_note(*free.maker, operands), declared(*free.maker, type)).results[0];
}

/// A value that is right in this chunk, and perhaps in no other one.
ValueId Walker::in_chunk(const Stream& free, int64_t chunk) {
  return free.kind == Kind::kLatched && free.since == chunk ? free.step : in_step(free);
}

ValueId Walker::in_start(const Op& op, const Stream& free) {
  if (free.kind == Kind::kConstant) return free.start;
  refuse(op, "needs a value before the first step that doesn't follow from the model's parameters");
}

ValueId Walker::uniform(const Op& reader, const Stream& uniform, const Part& part) {
  Streams operands;
  for (ValueId operand : uniform.maker->operands) operands.push_back(at(operand));
  std::vector<ValueId> values;
  for (const Stream& operand : operands) values.push_back(value_in(reader, operand, part));
  Builder& builder = part.is_step ? writer_.step() : writer_.start();
  const Type type = lengths_.sized(whole_.type(uniform.maker->results[0]), part.length, part.elements);
  return builder.append(without_note(*uniform.maker, values), declared(*uniform.maker, type)).results[0];
}

ValueId Walker::value_in(const Op& reader, const Stream& stream, const Part& part) {
  switch (stream.kind) {
    case Kind::kTimed:
      return part.is_chunk ? stream.step : writer_.lead_of(stream);
    case Kind::kUniform:
      return uniform(reader, stream, part);
    case Kind::kConstant:
    case Kind::kHeld:
    case Kind::kLatched:
      return part.is_step ? in_step(stream) : in_start(reader, stream);
    case Kind::kLast:
    case Kind::kEnd:
      break;
  }
  internal_error("streaming: {} reads a value of the sequence's end", ir::info(reader.code).name);
}

ValueId Walker::emit(const Op& op, const Streams& operands, const Part& part) {
  std::vector<ValueId> values;
  for (const Stream& operand : operands) values.push_back(value_in(op, operand, part));
  Builder& builder = part.is_step ? writer_.step() : writer_.start();
  const Type type = lengths_.sized(whole_.type(op.results[0]), part.length, part.elements);
  return builder.append(without_note(op, values), declared(op, type)).results[0];
}

// ---- results

Stream Walker::output(ValueId result, int64_t delay, int64_t group) {
  Stream stream = at(result);
  const auto name = [&] {
    return fmt::format("result {}", std::ranges::find(whole_.body.results, result) - whole_.body.results.begin());
  };
  if (stream.kind == Kind::kEnd && stream.looks_ahead != nullptr) refuse_end(*stream.looks_ahead, stream);
  if (stream.kind == Kind::kEnd) user_error("{} needs {}, which a stream doesn't know", name(), stream.needs);
  if (stream.kind == Kind::kConstant || stream.kind == Kind::kLatched) stream.step = in_step(stream);
  if (stream.kind == Kind::kUniform) {
    check(lengths_.count(whole_.type(result)) == 1, "{} has the number of steps in more than one dim", name());
    stream = timed_again(*stream.maker, stream);
  }
  if (stream.kind != Kind::kTimed && stream.kind != Kind::kLast) return stream;
  if (stream.kind == Kind::kTimed && stream.time.outer != 1) {
    user_error("{} has its steps in a dim that joins {} rows: give the rows a dim of their own", name(),
               stream.time.outer);
  }
  if (stream.kind == Kind::kLast) {
    if (stream.ahead < 0 || (stream.ahead == 0 && stream.settled < 0))
      user_error("{} is a last step, or a loop's last carry, of a sequence without its last steps", name());
    if (stream.ahead > 0)
      refuse(*stream.looks_ahead,
             "reads steps that are still to come, and {} is the last of them, or the last carry of a loop over them",
             name());
    return stream;
  }
  // The first chunk gives the first elements.
  stream = writer_.delayed(stream, stream.lead());
  // Elements that depend on the padding of the end would change if the sequence went on, so they are delayed until its
  // next steps are known.
  if (stream.settled < 0) stream = writer_.delayed(stream, std::max<int64_t>(-stream.ahead - stream.settled, 0));
  const int64_t steps = ceil_divide(stream.ahead * writer_.chunk() * group, stream.per_chunk);
  if (steps > delay && stream.looks_ahead != nullptr) {
    refuse(*stream.looks_ahead,
           "reads steps that are still to come: {} is complete {} steps late. Pad on the left only, with zeros, or "
           "allow it with delay={}",
           name(), steps, steps);
  }
  check(steps <= delay,
        "{} has more elements than steps have come, and is complete {} steps late: allow it with delay={}", name(),
        steps, steps);
  // Before the sequence's first element there is silence, and no quotient of zeros.
  return writer_.masked(stream, 0);
}

}  // namespace weft::streaming
