#include "native_run.h"

#include <algorithm>

#include "engine/engine.h"
#include "interpreter/interpreter.h"

namespace weft::testing {

using interpreter::Array;

std::vector<Array> run_native(const std::string& text, const std::vector<Array>& inputs, const ir::Bindings& bindings,
                              runtime::Team& team) {
  auto executable = engine::compile(text);
  std::vector<runtime::TensorRef> from, to;
  for (const Array& input : inputs)
    from.push_back({const_cast<std::byte*>(input.bytes.data()), input.dtype, input.sizes});
  std::vector<Array> outputs;
  for (ir::ValueId result : executable->program().body.results) {
    const ir::Type& type = executable->program().type(result);
    outputs.emplace_back(type.dtype, interpreter::sizes_of(type.shape, bindings));
    std::ranges::fill(outputs.back().bytes, std::byte{0x7f});
  }
  for (Array& output : outputs) to.push_back({output.bytes.data(), output.dtype, output.sizes});
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
