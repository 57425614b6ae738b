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
      if (stream.kind == Kind::kEnd) refuse(op, "needs {}, which is known only at the end", stream.needs);
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

/// An op with regions that isn't a loop over the steps.
void Walker::other_region(const Op& op, const Streams& operands) {
  Streams read = operands;
  for (const Stream& operand : operands) {
    if (operand.kind == Kind::kTimed || operand.kind == Kind::kUniform)
      refuse(op, "reads values that differ from step to step, but isn't a loop over the steps");
    if (operand.kind == Kind::kEnd) return end(op, operand.needs);
  }
  for (const ir::Block& region : op.regions) {
    passes::for_each_use(region, [&](ValueId value) {
      if (auto known = streams_.find(value); known != streams_.end()) read.push_back(known->second);
    });
  }
  plain(op, kind_without_time(op, read));
}

/// The stacks that a loop over the steps reads, delayed to the latest of them. `like` becomes a stream with that delay.
Walker::Streams Walker::stacks_of(const Op& op, const ScanView& view, Streams xs, Stream& like) {
  for (Stream& x : xs) {
    if (x.kind == Kind::kUniform) continue;
    if (x.kind != Kind::kTimed) refuse(op, "reads a value that doesn't have one element for each step");
    if (x.time.dim != 0 || x.time.outer != 1) refuse(op, "goes over another dim than the steps");
    x = writer_.as_time(x);
  }
  if (std::ranges::find(xs, Kind::kTimed, &Stream::kind) == xs.end()) {
    // The loop reads no timed value, but yields one.
    like = free_running(op, 0, view.length);
    return xs;
  }
  xs = aligned(op, xs);
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

void Walker::scan(const Op& op) {
  refuse_timed_region(op);
  const Streams operands = operands_of(op);
  if (!is_over_time(op)) return other_region(op, operands);
  const ScanView view(op);
  if (view.reverse) refuse(op, "goes from the sequence's end to its beginning, as a bidirectional layer's other half");
  if (view.ragged) refuse(op, "is over a packed sequence: give a stream each sequence by itself");
  Stream like;
  const Streams xs = stacks_of(op, view, {operands.begin() + view.carries, operands.end()}, like);
  std::vector<ValueId> initial, states, values;
  for (size_t i = 0; i < view.inits.size(); ++i) {
    const Stream& init = operands[i];
    if (init.kind != Kind::kConstant && init.kind != Kind::kHeld)
      refuse(op, "has an initial carry that depends on the steps themselves");
    initial.push_back(in_start(op, init));
  }
  const auto native = [&](bool is_step) -> Native {
    return [this, is_step](const Op& each, Builder& body, const passes::Substitution& map) {
      return in_region(each, body, map, is_step);
    };
  };
  Loop lead{initial, {}};
  if (like.lead() > 0) {
    for (const Stream& x : xs) values.push_back(value_in(op, x, false, view.length, like.lead()));
    lead = written(writer_.start(), view, captured_by(op, false), initial, values, like.lead(), ir::kNoValue,
                   native(false));
  }
  for (ValueId carry : lead.carries) states.push_back(writer_.add_state("carry", carry));
  values.clear();
  for (const Stream& x : xs) values.push_back(value_in(op, x, true, view.length, like.per_chunk));
  const ValueId mask = like.shift > 0 ? writer_.mask(like.per_chunk, like.shift) : ir::kNoValue;
  const Loop loop =
      written(writer_.step(), view, captured_by(op, true), states, values, like.per_chunk, mask, native(true));
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
