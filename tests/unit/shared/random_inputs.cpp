#include <random>

#include "base/batch_sizes.h"
#include "interpreter/interpreter.h"
#include "random_program.h"

namespace weft::testing {
namespace {

/// Any byte but 0 is true.
void vary_truth(interpreter::Array& bools, std::mt19937_64& random) {
  constexpr uint8_t kTrue[] = {1, 2, 0x80, 0xff};
  for (std::byte& each : bools.bytes)
    if (each != std::byte{0}) each = std::byte{kTrue[random() % std::size(kTrue)]};
}

}  // namespace

std::vector<interpreter::Array> random_inputs(const ir::Program& program, const ir::Bindings& bindings, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 0.5);
  std::vector<interpreter::Array> inputs;
  auto ragged = batch_sizes_inputs(program);
  for (ir::ValueId id : program.body.args) {
    const ir::Type& type = program.type(id);
    std::vector<int64_t> sizes = interpreter::sizes_of(type.shape, bindings);
    std::vector<double> values(static_cast<size_t>(interpreter::count_of(sizes)));
    if (auto it = ragged.find(id); it != ragged.end()) {
      std::vector<int64_t> rows = some_batch_sizes(sizes[0], ir::evaluate(it->second.rows, bindings),
                                                   ir::evaluate(it->second.packed, bindings), seed);
      values.assign(rows.begin(), rows.end());
      inputs.push_back(interpreter::Array::of(type.dtype, std::move(sizes), values));
      continue;
    }
    for (double& value : values) value = is_floating(type.dtype) ? normal(random) : static_cast<double>(random() % 2);
    inputs.push_back(interpreter::Array::of(type.dtype, std::move(sizes), values));
    if (type.dtype == DType::kBool) vary_truth(inputs.back(), random);
  }
  return inputs;
}

}  // namespace weft::testing
