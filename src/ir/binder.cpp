#include "ir/binder.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/size_checks.h"

namespace weft::ir {

Binder::Binder(const Program& program) : program_(program.name) {
  std::set<std::string> names;
  for (ValueId id : program.body.args)
    for (const Dim& dim : program.type(id).shape)
      if (dim.is_symbol()) names.insert(dim.name());
  sizes_ = SizeTable({names.begin(), names.end()});
  sources_.resize(names.size());
  std::vector<bool> has_source(names.size(), false);
  for (ValueId id : program.body.args) {
    inputs_.push_back(make_tensor(program, id));
    const Tensor& input = inputs_.back();
    for (size_t dim = 0; dim < input.shape.size(); ++dim) {
      const Place place{inputs_.size() - 1, dim};
      const bool first = input.type.shape[dim].is_symbol() && !has_source[input.shape[dim].values[0]];
      if (!first) {
        checks_.push_back(place);
        continue;
      }
      has_source[input.shape[dim].values[0]] = true;
      sources_[input.shape[dim].values[0]] = place;
    }
  }
  // Dims of one symbol are checked first: a message about two inputs that differ in a symbol is better than one about a
  // wrong product of symbols.
  std::ranges::stable_partition(
      checks_, [&](const Place& place) { return inputs_[place.input].type.shape[place.dim].is_symbol(); });
  for (ValueId id : program.body.results) outputs_.push_back(make_tensor(program, id));
  add_sign_checks(program);
}

Binder::Tensor Binder::make_tensor(const Program& program, ValueId id) {
  Tensor tensor{program.type(id), program.values[id].name, {}};
  for (const Dim& dim : tensor.type.shape) tensor.shape.push_back(add(dim));
  return tensor;
}

Binder::Size Binder::add(const Dim& dim) {
  std::set<std::string> names;
  dim.add_symbols(names);
  for (const std::string& name : names)
    check(std::ranges::binary_search(symbols(), name), "program @{}: symbol {} is no size of any input", program_,
          name);
  Size size = sizes_.add(dim);
  derived_.resize(sizes_.derived().size(), dim);
  return size;
}

void Binder::add_sign_checks(const Program& program) {
  for (const Dim& dim : sizes_to_check(program)) signs_.emplace_back(dim, add(dim));
}

std::string Binder::name_of_input(size_t input) const {
  const std::string& name = inputs_[input].name;
  return fmt::format("input {}{}", input, name.empty() ? "" : " '" + name + "'");
}

std::string Binder::requirement(size_t input) const {
  return fmt::format("{} of program @{} must be {}", name_of_input(input), program_, to_string(inputs_[input].type));
}

std::string Binder::sources_of(const Dim& dim, const std::function<std::string(Place)>& size_text) const {
  std::set<std::string> names;
  dim.add_symbols(names);
  std::string text;
  for (const std::string& name : names) {
    const auto symbol = static_cast<size_t>(std::ranges::lower_bound(symbols(), name) - symbols().begin());
    const Place source = sources_[symbol];
    text += fmt::format("{} {} = {} (dim {} of {})", text.empty() ? " with" : " and", name, size_text(source),
                        source.dim, name_of_input(source.input));
  }
  return text;
}

std::string Binder::complaint(const Misfit& misfit, const std::function<std::string(Place)>& size_text,
                              const std::function<std::string(size_t)>& given) const {
  if (misfit.size)
    return fmt::format("program @{}: the size {} is negative or overflows 64 bits{}", program_, to_string(*misfit.size),
                       sources_of(*misfit.size, size_text));
  const auto [input, dim] = misfit.place;
  return fmt::format("{}{}, but got {}", requirement(input), sources_of(inputs_[input].type.shape[dim], size_text),
                     given(input));
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
    user_error("{}", binder.complaint(*misfit, text, given));
  }
  Bindings bindings;
  for (size_t i = 0; i < binder.symbols().size(); ++i) bindings[binder.symbols()[i]] = values[i];
  return bindings;
}

}  // namespace weft::ir
