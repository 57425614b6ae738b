#include "engine/engine.h"

#include <chrono>
#include <mutex>

#include "base/error.h"
#include "base/fork.h"
#include "base/memory_range.h"
#include "engine/native.h"
#include "ir/text/parser.h"

namespace weft::engine {
namespace {

/// The state of the engine in this process. Never destroyed, since threads may still call while the process exits.
struct State {
  std::mutex& mutex = hold_across_fork(*new std::mutex, LockRank::kEngine);
  Stats counted;
};

State& state = *new State;

std::string text_of(const runtime::TensorRef& tensor) {
  return ir::to_string(ir::Type{tensor.dtype, {tensor.sizes.begin(), tensor.sizes.end()}});
}

/// Checks that an input whose memory a result takes shares this memory with no other input.
void check_donated(const ir::Program& program, std::span<const runtime::TensorRef> inputs) {
  if (program.donations.empty()) return;
  std::vector<MemoryRange> ranges;
  for (const runtime::TensorRef& input : inputs) {
    int64_t bytes = size_of(input.dtype);
    for (int64_t size : input.sizes) bytes *= size;
    const auto* first = static_cast<const std::byte*>(input.data);
    ranges.push_back({first, first + bytes});
  }
  for (const ir::Donation& donation : program.donations) ranges[donation.input].is_written = true;
  if (auto overlap = find_overlap(ranges))
    user_error("weft::call: inputs {} and {} of program @{} share memory, and a result is stored there", overlap->first,
               overlap->second, program.name);
}

}  // namespace

void Executable::run(std::span<const runtime::TensorRef> inputs, std::span<const runtime::TensorRef> outputs,
                     runtime::Team& team) const {
  const ir::Binder& types = binder();
  check(inputs.size() == types.inputs().size(), "weft::call: program @{} takes {} inputs, but got {}", types.program(),
        types.inputs().size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Type& type = types.inputs()[i].type;
    check(inputs[i].dtype == type.dtype && inputs[i].sizes.size() == type.shape.size(), "weft::call: {}, but got {}",
          types.requirement(i), text_of(inputs[i]));
  }
  std::vector<int64_t> symbols;
  auto size_at = [&](ir::Binder::Place place) { return inputs[place.input].sizes[place.dim]; };
  if (auto misfit = types.bind<ir::PlainSizes>(size_at, symbols)) {
    auto text = [&](ir::Binder::Place place) { return std::to_string(size_at(place)); };
    auto given = [&](size_t input) { return text_of(inputs[input]); };
    user_error("weft::call: {}", types.complaint(*misfit, text, given));
  }
  check_donated(program(), inputs);
  run(symbols, inputs, outputs, team);
}

std::shared_ptr<const Executable> compile(ir::Program program) {
  const auto start = std::chrono::steady_clock::now();
  NativeResult result = native(std::move(program));
  count(result, start);
  return std::move(result.executable);
}

void count(const NativeResult& compiled, std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::lock_guard lock(state.mutex);
  ++state.counted.compiled;
  state.counted.object_cache_hits += compiled.from_cache;
  state.counted.instructions += compiled.instructions;
  state.counted.compile_seconds += seconds.count();
}

std::shared_ptr<const Executable> compile(std::string_view text) { return compile(ir::parse(text)); }

Stats stats() {
  std::lock_guard lock(state.mutex);
  return state.counted;
}

void count_fallback(const std::string& reason) {
  std::lock_guard lock(state.mutex);
  ++state.counted.fallbacks[reason];
}

}  // namespace weft::engine
