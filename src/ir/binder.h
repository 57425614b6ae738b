#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/program.h"
#include "ir/size_table.h"

namespace weft::ir {

/// A program's input and output types, prepared for calls: symbols are numbers, and where each symbol's value comes
/// from is known, so that checking a call's inputs walks flat lists. The only place that compares sizes with types.
class Binder {
 public:
  using Size = SizeTable::Size;
  struct Tensor {
    Type type;
    std::string name;  ///< empty where it has none
    std::vector<Size> shape;
  };
  /// A dim of an input.
  struct Place {
    size_t input, dim;
  };
  /// Why inputs don't fit: the dim at `place` contradicts its type or another input; or, if `size` is set, that size of
  /// the program would be negative or overflow.
  struct Misfit {
    Place place;
    const Dim* size = nullptr;
  };

  /// User's error where a size of the program has a symbol that is no input's size.
  explicit Binder(const Program& program);

  const std::string& program() const { return program_; }
  const std::vector<std::string>& symbols() const { return sizes_.symbols(); }  ///< sorted
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }

  template <typename Arithmetic>
  static std::optional<typename Arithmetic::Int> evaluate(const Size& size,
                                                          const std::vector<typename Arithmetic::Int>& values) {
    return SizeTable::evaluate<Arithmetic>(size, values);
  }

  /// Completes `values`, which begin with those of symbols(), from the inputs' sizes size_at(place). The inputs must
  /// have the ranks of the types. Returns why the sizes don't fit, or nothing.
  template <typename Arithmetic, typename SizeAt>
  std::optional<Misfit> bind(SizeAt size_at, std::vector<typename Arithmetic::Int>& values) const {
    values.clear();
    values.reserve(sources_.size() + sizes_.derived().size());
    for (const Place& source : sources_) values.push_back(size_at(source));
    if (!sizes_.derive<Arithmetic>(values)) return Misfit{{}, &overflowing(values.size())};
    for (const Place& place : checks_) {
      auto expected = evaluate<Arithmetic>(inputs_[place.input].shape[place.dim], values);
      if (!expected || !Arithmetic::same(size_at(place), *expected)) return Misfit{place};
    }
    for (const auto& [dim, size] : signs_) {
      auto value = evaluate<Arithmetic>(size, values);
      if (!value || Arithmetic::is_negative(*value)) return Misfit{{}, &dim};
    }
    return std::nullopt;
  }

  /// What an input must be, for a message: "input 1 'b' of program @sum must be f32[N,2]".
  std::string requirement(size_t input) const;

  /// The message for a misfit. `given` describes an input as it is: "f32[3,2]".
  std::string complaint(const Misfit& misfit, const std::function<std::string(Place)>& size_text,
                        const std::function<std::string(size_t)>& given) const;

 private:
  Tensor make_tensor(const Program& program, ValueId id);
  Size add(const Dim& dim);
  void add_sign_checks(const Program& program);
  std::string name_of_input(size_t input) const;
  /// Where the symbols of a dim have their values from: " with N = 3 (dim 0 of input 0 'a')".
  std::string sources_of(const Dim& dim, const std::function<std::string(Place)>& size_text) const;
  /// The dim behind the first derived value that a call could not compute.
  const Dim& overflowing(size_t values) const { return derived_[values - sources_.size()]; }

  std::string program_;
  SizeTable sizes_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<Place> sources_;               ///< by symbol: its first occurrence alone
  std::vector<Place> checks_;                ///< all dims but the sources
  std::vector<std::pair<Dim, Size>> signs_;  ///< what must not be negative
  std::vector<Dim> derived_;                 ///< by derived value: a dim that is computed from it
};

/// Values of all symbols from the inputs' sizes (one vector of sizes an input). User's error naming the input, its type
/// and what was given when a size contradicts the type or another input's.
Bindings bind(const Program& program, const std::vector<std::vector<int64_t>>& sizes);

}  // namespace weft::ir
