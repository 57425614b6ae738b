#include "native_run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/settings.h"
#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "runtime/memory/guarded_memory.h"

namespace weft::testing {

using interpreter::Array;
using runtime::GuardedMemory;

namespace {

/// Whether a result takes the memory of an input.
bool result_in(const ir::Program& program, size_t input) {
  return std::ranges::find(program.donations, input, &ir::Donation::input) != program.donations.end();
}

/// Runs again with inputs that cannot be written, and with outputs around which nothing can be, all of them byte for
/// byte beside a page that faults. `outputs` are filled in.
void run_guarded(const engine::Executable& executable, const std::vector<Array>& inputs, std::vector<Array>& outputs,
                 runtime::Team& team, GuardedMemory::Side side) {
  std::vector<GuardedMemory> memory;
  auto guard = [&](const Array& array) {
    memory.emplace_back(std::ssize(array.bytes), side);
    return runtime::TensorRef{memory.back().data(), array.dtype, array.sizes};
  };
  std::vector<runtime::TensorRef> from, to;
  for (size_t i = 0; i < inputs.size(); ++i) {
    from.push_back(guard(inputs[i]));
    std::ranges::copy(inputs[i].bytes, memory.back().data());
    if (!result_in(executable.program(), i)) memory.back().make_read_only();
  }
  for (const Array& output : outputs) to.push_back(guard(output));
  for (const ir::Donation& donation : executable.program().donations) to[donation.result] = from[donation.input];
  executable.run(from, to, team);
  for (const GuardedMemory& each : memory)
    internal_check(each.is_intact(), "the run wrote beside an output of {} bytes", each.bytes());
  for (size_t i = 0; i < outputs.size(); ++i)
    std::copy_n(static_cast<const std::byte*>(to[i].data), outputs[i].bytes.size(), outputs[i].bytes.begin());
}

/// The compiled program; the last one compiled in this thread if it is the same under the same settings, since tests
/// run one program on many shapes, and compiling takes far longer than running. Settings::share_all doesn't count: it
/// is read at each run.
std::shared_ptr<const engine::Executable> compiled(const std::string& text) {
  struct Last {
    std::string text, isa;
    std::vector<std::string> disabled;
    bool guard, delays;
    bool operator==(const Last&) const = default;
  };
  thread_local Last last;
  thread_local std::shared_ptr<const engine::Executable> executable;
  const Settings& now = settings();
  Last wanted{text, now.isa, now.disabled, now.guard, now.delays};
  if (!executable || wanted != last) {
    executable = nullptr;
    const bool verify = std::exchange(mutable_settings().verify, true);
    executable = engine::compile(text);
    mutable_settings().verify = verify;
    last = std::move(wanted);
  }
  return executable;
}

}  // namespace

std::vector<Array> run_native(const std::string& text, const std::vector<Array>& inputs, const ir::Bindings& bindings,
                              runtime::Team& team) {
  auto executable = compiled(text);
  std::vector<runtime::TensorRef> from, to;
  for (const Array& input : inputs)
    from.push_back({const_cast<std::byte*>(input.bytes.data()), input.dtype, input.sizes});
  std::vector<Array> outputs;
  for (ir::ValueId result : executable->program().body.results) {
    const ir::Type& type = executable->program().type(result);
    outputs.emplace_back(type.dtype, interpreter::sizes_of(type.shape, bindings));
    std::ranges::fill(outputs.back().bytes, std::byte{0x7f});
  }
  if (settings().guard) {
    std::vector<Array> at_start = outputs;
    run_guarded(*executable, inputs, at_start, team, GuardedMemory::Side::kStart);
    run_guarded(*executable, inputs, outputs, team, GuardedMemory::Side::kEnd);
    for (size_t i = 0; i < outputs.size(); ++i)
      internal_check(outputs[i].bytes == at_start[i].bytes, "output {} depends on where memory lies", i);
    return outputs;
  }
  for (Array& output : outputs) to.push_back({output.bytes.data(), output.dtype, output.sizes});
  for (const ir::Donation& donation : executable->program().donations) {
    outputs[donation.result].bytes = inputs[donation.input].bytes;
    from[donation.input].data = to[donation.result].data = outputs[donation.result].bytes.data();
  }
  executable->run(from, to, team);
  return outputs;
}

int64_t fallbacks(const std::string& part) {
  int64_t count = 0;
  for (const auto& [reason, times] : engine::stats().fallbacks)
    if (reason.find(part) != std::string::npos) count += times;
  return count;
}

}  // namespace weft::testing
