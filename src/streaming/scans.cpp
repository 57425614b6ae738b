// A loop over the steps becomes one step, with its carries as states. Other ops with regions stay as they are.
#include <algorithm>

#include "streaming/walker.h"

namespace weft::streaming {

using ir::Builder;
using ir::Op;
using ir::OpCode;
using ir::ScanView;
using ir::Type;
using ir::ValueId;
using Kind = Stream::Kind;

namespace {

/// The results of a scan over the steps in one of the two programs.
struct Loop {
  std::vector<ValueId> carries, stacks;
};

/// Writes an op of the region as other ops. Returns none if the op stays as it is.
using Native = std::function<std::optional<ValueId>(const Op&, Builder& body, const passes::Substitution& map)>;

void for_each_type(const ir::Program& program, const ir::Block& block, const std::function<void(const Type&)>& see) {
  for (ValueId arg : block.args) see(program.type(arg));
  for (const Op& op : block.ops) {
    for (ValueId result : op.results) see(program.type(result));
    for (const ir::Block& region : op.regions) for_each_type(program, region, see);
  }
}

/// The scan over as many steps as the xs have. `map`: values from outside that the region reads. `mask`: bool[length],
/// the steps at which the carries change; kNoValue: all steps.
Loop written(Builder& builder, const ScanView& scan, passes::Substitution map, const std::vector<ValueId>& inits,
             const std::vector<ValueId>& xs, int64_t length, ValueId mask, const Native& native) {
  std::vector<ValueId> all = xs;
  if (mask != ir::kNoValue) all.push_back(mask);
  const Builder::Step step = [&](Builder& body, std::span<const ValueId> carries, std::span<const ValueId> slices) {
    for (size_t i = 0; i < carries.size(); ++i) map.set(scan.carry_args[i], carries[i]);
    for (size_t i = 0; i < scan.x_args.size(); ++i) map.set(scan.x_args[i], slices[i]);
    for (const Op& op : scan.region.ops) {
      if (const std::optional<ValueId> value = native(op, body, map)) {
        map.set(op.results[0], *value);
      } else {
        body.block().ops.push_back(passes::clone(body.program(), op, map));
      }
    }
    Builder::StepResults results;
    for (size_t i = 0; i < carries.size(); ++i) {
      ValueId out = map(scan.carry_outs[i]);
      if (mask != ir::kNoValue)
        out = body.select(body.broadcast(slices.back(), body.type(out).shape, {}), out, carries[i]);
      results.carries.push_back(out);
    }
    for (ValueId y : scan.y_outs) results.ys.push_back(map(y));
    return results;
  };
  Loop loop;
  if (length != 1) {
    std::vector<ValueId> results = builder.scan(inits, all, length, false, step);
    const auto first_stack = results.begin() + static_cast<std::ptrdiff_t>(inits.size());
    return {{results.begin(), first_stack}, {first_stack, results.end()}};
  }
  std::vector<ValueId> slices;
  for (ValueId x : all) {
    const ir::Shape& shape = builder.type(x).shape;
    slices.push_back(builder.reshape(x, {shape.begin() + 1, shape.end()}));
  }
  Builder::StepResults results = step(builder, inits, slices);
  loop.carries = std::move(results.carries);
  for (ValueId y : results.ys) loop.stacks.push_back(builder.reshape(y, passes::stacked(builder.type(y), 1).shape));
  return loop;
}

}  // namespace

bool Walker::is_over_time(const Op& op) const {
  return op.code == OpCode::kScan && lengths_.mentions(op.attr<ir::Dim>("length"));
}

/// Refuses regions that read timed values, other than the xs of a scan over the steps.
void Walker::refuse_timed_region(const Op& op) {
  for (const ir::Block& region : op.regions) {
    for_each_type(whole_, region, [&](const Type& type) {
      if (lengths_.mentions(type)) refuse(op, "reads all steps of a sequence at each of its own");
    });
    passes::for_each_use(region, [&](ValueId value) {
      auto known = streams_.find(value);
      if (known == streams_.end()) return;
      const Stream& stream = known->second;
      if (stream.kind == Kind::kTimed || stream.kind == Kind::kUniform)
        refuse(op, "reads all steps of a sequence at each of its own");
      if (is_over_time(op) && stream.kind == Kind::kLast)
        refuse(op, "reads another loop's last carry at steps before the last one");
      if (stream.kind == Kind::kEnd) refuse_end(op, stream);
    });
  }
}

passes::Substitution Walker::captured_by(const Op& op, bool is_step) {
  passes::Substitution map;
  passes::for_each_use(op.regions[0], [&](ValueId value) {
    auto known = streams_.find(value);
    if (known == streams_.end() || map.contains(value)) return;
    map.set(value, is_step ? in_step(known->second) : in_start(op, known->second));
  });
  return map;
}

/// The values from outside that the op's regions read.
Walker::Streams Walker::captures_of(const Op& op) {
  Streams captures;
  for (const ir::Block& region : op.regions) {
    passes::for_each_use(region, [&](ValueId value) {
      if (auto known = streams_.find(value); known != streams_.end()) captures.push_back(known->second);
    });
  }
  return captures;
}

/// An op with regions that isn't a loop over the steps.
void Walker::other_region(const Op& op, const Streams& operands) {
  Streams read = operands;
  for (const Stream& operand : operands) {
    if (operand.kind == Kind::kTimed || operand.kind == Kind::kUniform)
      refuse(op, "reads values that differ from step to step, but isn't a loop over the steps");
    if (operand.kind == Kind::kEnd) return end(op, operand.needs, operand.looks_ahead);
  }
  const Streams captures = captures_of(op);
  read.insert(read.end(), captures.begin(), captures.end());
  plain(op, kind_without_time(op, read));
}

/// The stacks that a loop over the steps reads, delayed to the latest of them, and to the chunk in which what it takes
/// beside them is known. `like` becomes a stream with that delay.
Walker::Streams Walker::stacks_of(const Op& op, const ScanView& view, Streams xs, int64_t known, Stream& like) {
  for (Stream& x : xs) {
    if (x.kind == Kind::kUniform) continue;
    if (x.kind != Kind::kTimed) refuse(op, "reads a value that doesn't have one element for each step");
    if (x.time.dim != 0 || x.time.outer != 1) refuse(op, "goes over another dim than the steps");
    x = writer_.as_time(x);
  }
  if (std::ranges::find(xs, Kind::kTimed, &Stream::kind) == xs.end()) {
    // The loop reads no timed value, but yields one.
    for (const Stream& x : xs) known = std::max(known, x.since);
    like = free_running(op, 0, view.length);
    if (known >= 0) like.shift = std::max(like.shift, known * like.per_chunk);
    return xs;
  }
  for (const Stream& x : xs)
    if (x.kind == Kind::kUniform) known = std::max(known, x.since);
  xs = late_enough(aligned(op, xs), known, false);
  int64_t settled = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    if (xs[i].kind != Kind::kTimed) continue;
    settled = std::min(settled, xs[i].settled);
    // Indices of steps before the sequence must not make the loop fail.
    if (!is_floating(whole_.type(view.xs[i]).dtype)) xs[i] = writer_.masked(xs[i], 0);
  }
  like = *std::ranges::find(xs, Kind::kTimed, &Stream::kind);
  like.settled = settled;
  return xs;
}

/// The chunk in which all is known that a loop takes beside its stacks: these initial carries, and what its step reads.
int64_t Walker::known_before(const Op& op, const Streams& inits) {
  int64_t known = Stream::kAtStart;
  for (const Stream& init : inits) {
    if (init.kind == Kind::kEnd) refuse_end(op, init);
    if (init.kind != Kind::kConstant && init.kind != Kind::kHeld && init.kind != Kind::kLatched)
      refuse(op, "has an initial carry that depends on all steps");
    known = std::max(known, known_from(init));
  }
  for (const Stream& captured : captures_of(op)) known = std::max(known, known_from(captured));
  return known;
}

void Walker::scan(const Op& op) {
  refuse_timed_region(op);
  const Streams operands = operands_of(op);
  if (!is_over_time(op)) return other_region(op, operands);
  const ScanView view(op);
  if (view.reverse) refuse(op, "goes from the sequence's end to its beginning, as a bidirectional layer's other half");
  if (view.ragged) refuse(op, "is over a packed sequence: give a stream each sequence by itself");
  Stream like;
  const Streams inits(operands.begin(), operands.begin() + view.carries);
  const Streams xs =
      stacks_of(op, view, {operands.begin() + view.carries, operands.end()}, known_before(op, inits), like);
  std::vector<ValueId> initial, states, carries, values;
  for (size_t i = 0; i < inits.size(); ++i)
    initial.push_back(inits[i].kind == Kind::kConstant ? inits[i].start
                                                       : writer_.start().constant(0, whole_.type(view.inits[i])));
  const auto native = [&](bool is_step) -> Native {
    return [this, is_step](const Op& each, Builder& body, const passes::Substitution& map) {
      return in_region(each, body, map, is_step);
    };
  };
  Loop lead{initial, {}};
  if (like.lead() > 0) {
    for (const Stream& x : xs) values.push_back(value_in(op, x, lead_of(like)));
    lead = written(writer_.start(), view, captured_by(op, false), initial, values, like.lead(), ir::kNoValue,
                   native(false));
  }
  for (size_t i = 0; i < inits.size(); ++i) {
    states.push_back(writer_.add_state("carry", lead.carries[i]));
    const int64_t first = like.chunk_of_first();  // a carry that isn't known at the start is set in it
    carries.push_back(inits[i].kind == Kind::kConstant ? states[i]
                                                       : writer_.in_chunk(first, in_chunk(inits[i], first), states[i]));
  }
  values.clear();
  for (const Stream& x : xs) values.push_back(value_in(op, x, chunk_of(like)));
  const ValueId mask = like.shift > 0 ? writer_.mask(like.per_chunk, like.shift) : ir::kNoValue;
  const Loop loop =
      written(writer_.step(), view, captured_by(op, true), carries, values, like.per_chunk, mask, native(true));
  for (size_t i = 0; i < states.size(); ++i) {
    writer_.set_next(states[i], loop.carries[i]);
    Stream last;
    last.kind = Kind::kLast;
    last.step = loop.carries[i];
    last.ahead = ahead_of(like);
    last.settled = like.settled;
    last.looks_ahead = like.looks_ahead == nullptr ? &op : like.looks_ahead;
    define(op, i, std::move(last), {});
  }
  for (size_t i = 0; i < loop.stacks.size(); ++i) {
    Stream stack = like;
    stack.origin = writer_.new_origin();
    stack.step = loop.stacks[i];
    stack.start = like.lead() > 0 ? lead.stacks[i] : ir::kNoValue;
    define(op, states.size() + i, std::move(stack), xs);
  }
}

}  // namespace weft::streaming
