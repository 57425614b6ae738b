#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace weft::testing {

/// y = x + number, a program of its own for each number.
inline std::string adding(int64_t number) {
  return fmt::format(
      "program @p(%x: f32[N]) {{ %c = constant {{value = {}.0}} : f32[] %k = broadcast %c {{dims = []}} : f32[N] "
      "%y = add %x, %k : f32[N] return %y }}",
      number);
}

/// Whether the program gives the `size` numbers that it should.
inline bool adds(const engine::Executable& executable, int64_t number, int64_t size) {
  std::vector<float> x(static_cast<size_t>(size), 1), y(x.size());
  std::vector<int64_t> sizes{size};
  runtime::TensorRef in{x.data(), DType::kF32, sizes}, out{y.data(), DType::kF32, sizes};
  executable.run({&in, 1}, {&out, 1}, runtime::own_team(2));
  return y == std::vector<float>(x.size(), static_cast<float>(number + 1));
}

}  // namespace weft::testing
