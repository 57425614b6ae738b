#include "ir/binder.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace weft::ir {

Binder::Binder(const Program& program) : program_(program.name) {
  std::set<std::string> names;
  for (ValueId id : program.body.args)
    for (const Dim& dim : program.type(id).shape)
      if (dim.is_symbol()) names.insert(dim.symbols[0]);
  symbols_.assign(names.begin(), names.end());
  sources_.resize(symbols_.size());
  std::vector<bool> has_source(symbols_.size(), false);
  for (ValueId id : program.body.args) {
    inputs_.push_back(make_tensor(program, id));
    const Tensor& input = inputs_.back();
    for (size_t dim = 0; dim < input.shape.size(); ++dim) {
      const Place place{inputs_.size() - 1, dim};
      const bool first = input.type.shape[dim].is_symbol() && !has_source[input.shape[dim].symbols[0]];
      if (!first) {
        checks_.push_back(place);
        continue;
      }
      has_source[input.shape[dim].symbols[0]] = true;
      sources_[input.shape[dim].symbols[0]] = place;
    }
  }
  // Two inputs that differ in one symbol explain a misfit better than a product that comes out wrong.
  std::ranges::stable_partition(
      checks_, [&](const Place& place) { return inputs_[place.input].type.shape[place.dim].is_symbol(); });
  for (ValueId id : program.body.results) outputs_.push_back(make_tensor(program, id));
}

Binder::Tensor Binder::make_tensor(const Program& program, ValueId id) const {
  Tensor tensor{program.type(id), program.values[id].name, {}};
  for (const Dim& dim : tensor.type.shape) {
    Size size{dim.factor, {}};
    for (const std::string& symbol : dim.symbols) {
      auto found = std::ranges::lower_bound(symbols_, symbol);
      check(found != symbols_.end() && *found == symbol, "program @{}: symbol {} is no size of any input", program_,
            symbol);
      size.symbols.push_back(static_cast<size_t>(found - symbols_.begin()));
    }
    tensor.shape.push_back(std::move(size));
  }
  return tensor;
}

std::string Binder::name_of_input(size_t input) const {
  const std::string& name = inputs_[input].name;
  return fmt::format("input {}{}", input, name.empty() ? "" : " '" + name + "'");
}

std::string Binder::requirement(size_t input) const {
  return fmt::format("{} of program @{} must be {}", name_of_input(input), program_, to_string(inputs_[input].type));
}

std::string Binder::sources_of(Place place, const std::function<std::string(Place)>& size_text) const {
  std::string text;
  for (size_t symbol : inputs_[place.input].shape[place.dim].symbols) {
    const Place source = sources_[symbol];
    text += fmt::format("{} {} = {} (dim {} of {})", text.empty() ? " with" : " and", symbols_[symbol],
                        size_text(source), source.dim, name_of_input(source.input));
  }
  return text;
}

Bindings bind(const Program& program, const std::vector<std::vector<int64_t>>& sizes) {
  const Binder binder(program);
  check(sizes.size() == binder.inputs().size(), "program @{} takes {} inputs, but got {}", program.name,
        binder.inputs().size(), sizes.size());
  auto given = [&](size_t input) {
    return to_string(Type{binder.inputs()[input].type.dtype, {sizes[input].begin(), sizes[input].end()}});
  };
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool negative = std::ranges::any_of(sizes[i], [](int64_t size) { return size < 0; });
    check(!negative && sizes[i].size() == binder.inputs()[i].shape.size(), "{}, but got {}", binder.requirement(i),
          given(i));
  }
  std::vector<int64_t> values;
  auto size_at = [&](Binder::Place place) { return sizes[place.input][place.dim]; };
  if (auto misfit = binder.bind<PlainSizes>(size_at, values)) {
    auto text = [&](Binder::Place place) { return std::to_string(size_at(place)); };
    user_error("{}{}, but got {}", binder.requirement(misfit->input), binder.sources_of(*misfit, text),
               given(misfit->input));
  }
  Bindings bindings;
  for (size_t i = 0; i < values.size(); ++i) bindings[binder.symbols()[i]] = values[i];
  return bindings;
}

}  // namespace weft::ir
