#include "engine/engine.h"

#include <chrono>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/fork.h"
#include "engine/native.h"
#include "ir/parser.h"

namespace weft::engine {
namespace {

/// The state of the engine in this process. Never destroyed, since threads may still call while the process exits.
struct State {
  std::mutex& mutex = hold_across_fork(*new std::mutex, LockRank::kEngine);
  std::unordered_map<std::string, std::weak_ptr<const Executable>> executables;
  size_t live = 0;  ///< how many of these were in use at the last sweep
  Stats counted;

  /// Forgets executables that nobody holds, once their number may have doubled.
  void sweep() {
    if (executables.size() < 2 * live + 64) return;
    std::erase_if(executables, [](const auto& entry) { return entry.second.expired(); });
    live = executables.size();
  }
};

State& state = *new State;

std::shared_ptr<const Executable> build(ir::Program program) {
  auto start = std::chrono::steady_clock::now();
  NativeResult result = native(std::move(program));
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::lock_guard lock(state.mutex);
  ++state.counted.compiled;
  state.counted.object_cache_hits += result.from_cache;
  state.counted.instructions += result.instructions;
  state.counted.compile_seconds += seconds.count();
  return std::move(result.executable);
}

std::string text_of(const runtime::TensorRef& tensor) {
  return ir::to_string(ir::Type{tensor.dtype, {tensor.sizes.begin(), tensor.sizes.end()}});
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
  run(symbols, inputs, outputs, team);
}

namespace {

/// The executable that is kept for the text, or that of `make_program`.
template <typename MakeProgram>
std::shared_ptr<const Executable> find_or_build(std::string key, MakeProgram make_program) {
  {
    std::lock_guard lock(state.mutex);
    if (auto found = state.executables.find(key); found != state.executables.end())
      if (auto executable = found->second.lock()) return executable;
  }
  // Two threads may build the same program at once; the first to finish is kept.
  auto executable = build(make_program());
  std::lock_guard lock(state.mutex);
  state.sweep();
  auto& known = state.executables[std::move(key)];
  if (auto other = known.lock()) return other;
  known = executable;
  return executable;
}

}  // namespace

std::shared_ptr<const Executable> compile(std::string_view text) {
  return find_or_build(std::string(text), [&] { return ir::parse(text); });
}

std::shared_ptr<const Executable> compile(std::string_view text, const ir::Program& program) {
  return find_or_build(std::string(text), [&] { return program; });
}

Stats stats() {
  std::lock_guard lock(state.mutex);
  return state.counted;
}

void count_fallback(const std::string& reason) {
  std::lock_guard lock(state.mutex);
  ++state.counted.fallbacks[reason];
}

}  // namespace weft::engine
