#include "engine/inputs.h"

#include <algorithm>

#include "ir/verifier.h"

namespace weft::engine {

bool InputChecker::fits(const Size& size, std::span<const int64_t> values, int64_t given) {
  int64_t wanted = size.factor;
  bool overflow = false;
  for (int64_t symbol : size.symbols) {
    const int64_t value = values[static_cast<size_t>(symbol)];
    if (value == 0) return given == 0;
    overflow = overflow || __builtin_mul_overflow(wanted, value, &wanted);
  }
  return !overflow && given == wanted;
}

InputChecker::InputChecker(const ir::Program& program, std::span<const std::string> symbols) : program_(program) {
  binders_.assign(symbols.size(), {0, 0});
  auto index = [&](const std::string& name) { return std::ranges::find(symbols, name) - symbols.begin(); };
  std::vector<bool> bound(symbols.size(), false);
  for (size_t i = 0; i < program.body.args.size(); ++i) {
    const ir::Shape& shape = program.type(program.body.args[i]).shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      Size size{i, d, shape[d].factor, {}};
      for (const std::string& symbol : shape[d].symbols) size.symbols.push_back(index(symbol));
      bool alone = size.factor == 1 && size.symbols.size() == 1;
      if (alone && !bound[static_cast<size_t>(size.symbols[0])]) {
        bound[static_cast<size_t>(size.symbols[0])] = true;
        binders_[static_cast<size_t>(size.symbols[0])] = {i, d};
      } else {
        sizes_.push_back(std::move(size));
      }
    }
  }
}

std::vector<int64_t> InputChecker::values(std::span<const runtime::TensorRef> inputs) const {
  const auto& args = program_.body.args;
  check(inputs.size() == args.size(), "weft::call: program @{} takes {} inputs, got {}", program_.name, args.size(),
        inputs.size());
  for (size_t i = 0; i < args.size(); ++i) {
    const ir::Type& type = program_.type(args[i]);
    if (inputs[i].dtype != type.dtype || inputs[i].sizes.size() != type.shape.size()) complain(inputs);
  }
  std::vector<int64_t> values;
  for (auto [input, dim] : binders_) values.push_back(inputs[input].sizes[dim]);
  for (const Size& size : sizes_) {
    if (!fits(size, values, inputs[size.input].sizes[size.dim])) complain(inputs);
  }
  return values;
}

void InputChecker::complain(std::span<const runtime::TensorRef> inputs) const {
  std::vector<std::vector<int64_t>> sizes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Value& value = program_.values[program_.body.args[i]];
    check(inputs[i].dtype == value.type.dtype, "weft::call: input {} (%{}) of program @{} should be {}, got dtype {}",
          i, value.name, program_.name, to_string(value.type), name_of(inputs[i].dtype));
    sizes.emplace_back(inputs[i].sizes.begin(), inputs[i].sizes.end());
  }
  ir::bind(program_, sizes);
  internal_error("inputs of @{} were refused without a reason", program_.name);
}

}  // namespace weft::engine
