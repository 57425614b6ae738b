#include "streaming/streaming.h"

#include "ir/verifier.h"
#include "passes/native_calls/native_calls.h"
#include "passes/pass_runner.h"
#include "streaming/fixed_places.h"
#include "streaming/inner_loops.h"
#include "streaming/last_rows.h"
#include "streaming/running_totals.h"
#include "streaming/unit_dims.h"
#include "streaming/walker.h"

namespace weft::streaming {

namespace {

/// The symbol of the time dims. User's error where they have none, or several.
Lengths lengths_of(const ir::Program& whole, const std::vector<std::optional<size_t>>& time_dims, int64_t group) {
  std::string symbol;
  const std::vector<ir::ValueId>& inputs = whole.body.args;
  check(time_dims.size() <= inputs.size(), "there are {} time dims for {} inputs", time_dims.size(), inputs.size());
  for (size_t i = 0; i < time_dims.size(); ++i) {
    if (!time_dims[i]) continue;
    const ir::Type& type = whole.type(inputs[i]);
    check(*time_dims[i] < type.shape.size(), "input {} is {}, which has no dim {}", i, to_string(type), *time_dims[i]);
    const ir::Dim& dim = type.shape[*time_dims[i]];
    check(dim.is_symbol(), "the program is for {} steps of input {} alone, and says nothing of other numbers",
          to_string(dim), i);
    check(symbol.empty() || symbol == dim.name(), "inputs have {} and {} steps: a stream has one number of them",
          symbol, dim.name());
    symbol = dim.name();
    const size_t behind = *time_dims[i] + 1;
    check(group == 1 || (behind < type.shape.size() && type.shape[behind] == ir::Dim(group)),
          "input {} is {}, in which no {} steps are behind the dim {}", i, to_string(type), group, *time_dims[i]);
  }
  check(!symbol.empty(), "no input has a time dim");
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t dim = 0; dim < whole.type(inputs[i]).shape.size(); ++dim) {
      const ir::Dim& size = whole.type(inputs[i]).shape[dim];
      const bool is_time = i < time_dims.size() && time_dims[i] == dim;
      check(is_time || size.is_constant(), "input {} is {}: of its dims only the time may be a symbol", i,
            to_string(whole.type(inputs[i])));
    }
  return Lengths(symbol);
}

Port port_of(const Stream& stream) {
  if (stream.kind != Stream::Kind::kTimed) return {};
  return {stream.time.dim, stream.per_chunk * stream.time.inner, stream.shift * stream.time.inner};
}

constexpr int64_t kMostSteps = int64_t{1} << 20;

struct Walked {
  Streamed streamed;
  Histories histories;
};

Walked walked(const ir::Program& whole, const std::vector<std::optional<size_t>>& time_dims, int64_t delay,
              int64_t group, const Lengths& lengths, int64_t chunk, Histories histories) {
  Writer writer(whole, lengths, chunk, std::move(histories));
  Walker walker(whole, writer);
  for (size_t i = 0; i < whole.body.args.size(); ++i) {
    if (i < time_dims.size()) {
      walker.add_input(whole.body.args[i], time_dims[i], group);
    } else {
      walker.add_weight(whole.body.args[i]);
    }
  }
  walker.walk();
  std::vector<ir::ValueId> results;
  std::vector<Port> ports;
  for (ir::ValueId result : whole.body.results) {
    const Stream output = walker.output(result, delay, group);
    results.push_back(output.step);
    ports.push_back(port_of(output));
  }
  Walked found{writer.finish(results), writer.histories()};
  found.streamed.outputs = std::move(ports);
  found.streamed.chunk *= group;
  for (const std::optional<size_t>& dim : time_dims)
    found.streamed.inputs.push_back(dim ? Port{dim, found.streamed.chunk, 0} : Port{});
  return found;
}

/// Writes calls of PyTorch as the language's own ops. Refuses those without such a form; within a loop's step they may
/// stay.
void with_own_ops(ir::Program& step) {
  passes::native_calls(step);
  for (const ir::Op& op : step.body.ops)
    if (ir::traits_of(op.code).calls_out) refuse(op, "is a kernel of PyTorch's that has no streaming form");
}

}  // namespace

Streamed stream(const ir::Program& program, const std::vector<std::optional<size_t>>& time_dims, int64_t delay,
                int64_t group, int64_t chunk) {
  check(delay >= 0, "delay must be a number of steps, but is {}", delay);
  ir::Program whole = program;
  whole.donations.clear();
  constexpr std::string_view kBefore[] = {"drop_derivatives", "dce"};
  passes::run_passes(whole, kBefore);
  last_rows(whole);
  running_totals(whole);
  const Lengths lengths = lengths_of(whole, time_dims, group);
  fixed_places(whole, lengths);
  inner_loops(whole, lengths);
  ir::verify(whole);
  const int64_t least = steps_of_chunk(whole, lengths);
  if (chunk == 0) chunk = least * group;
  check(chunk > 0 && chunk % (least * group) == 0 && chunk <= kMostSteps,
        "{} steps at once are not possible: this model takes multiples of {}, up to {}", chunk, least * group,
        kMostSteps);
  chunk /= group;
  // Who reads how far back is known at the end of a first run.
  Histories histories = walked(whole, time_dims, delay, group, lengths, chunk, {}).histories;
  Streamed result = walked(whole, time_dims, delay, group, lengths, chunk, std::move(histories)).streamed;
  constexpr std::string_view kAfter[] = {"canonicalise", "cse", "dce"};
  for (ir::Program* written : {&result.step, &result.start}) {
    if (written == &result.step) with_own_ops(*written);
    ir::verify(*written);
    reshape_unit_dims(*written);
    passes::run_passes(*written, kAfter);
  }
  return result;
}

}  // namespace weft::streaming
