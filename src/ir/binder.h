#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/program.h"

namespace weft::ir {

/// Arithmetic on sizes that are numbers. PyTorch's symbolic sizes have their own (pytorch/operator/signature.h).
struct PlainSizes {
  using Int = int64_t;
  static bool is_zero(int64_t size) { return size == 0; }
  /// False where the product overflows.
  static bool multiply(int64_t& product, int64_t size) { return !__builtin_mul_overflow(product, size, &product); }
  static bool same(int64_t a, int64_t b) { return a == b; }
};

/// A program's input and output types, prepared for calls: symbols are numbers, and where each symbol's value comes
/// from is known, so that checking a call's inputs walks flat lists. The only place that compares sizes with types.
class Binder {
 public:
  /// As ir::Dim, symbols as indices into symbols().
  struct Size {
    int64_t factor = 1;
    std::vector<size_t> symbols;
  };
  struct Tensor {
    Type type;
    std::string name;  ///< empty where it has none
    std::vector<Size> shape;
  };
  /// A dim of an input.
  struct Place {
    size_t input, dim;
  };

  /// User's error where a size of the program has a symbol that is no input's size.
  explicit Binder(const Program& program);

  const std::string& program() const { return program_; }
  const std::vector<std::string>& symbols() const { return symbols_; }  ///< sorted
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }

  /// The size for these values of symbols. Nothing where it overflows: low bits that happen to be some tensor's size
  /// are none. 0 times anything is 0.
  template <typename Arithmetic>
  static std::optional<typename Arithmetic::Int> evaluate(const Size& size,
                                                          const std::vector<typename Arithmetic::Int>& values) {
    typename Arithmetic::Int result = size.factor;
    bool fits = true;
    for (size_t symbol : size.symbols) {
      if (Arithmetic::is_zero(values[symbol])) return typename Arithmetic::Int(0);
      fits = fits && Arithmetic::multiply(result, values[symbol]);
    }
    if (!fits) return std::nullopt;
    return result;
  }

  /// Sets the symbols' values from the inputs' sizes, size_at(place); the inputs' ranks must be the types'. Returns a
  /// dim that contradicts its type or another input, if there is one.
  template <typename Arithmetic, typename SizeAt>
  std::optional<Place> bind(SizeAt size_at, std::vector<typename Arithmetic::Int>& values) const {
    values.clear();
    values.reserve(sources_.size());
    for (const Place& source : sources_) values.push_back(size_at(source));
    for (const Place& place : checks_) {
      auto expected = evaluate<Arithmetic>(inputs_[place.input].shape[place.dim], values);
      if (!expected || !Arithmetic::same(size_at(place), *expected)) return place;
    }
    return std::nullopt;
  }

  /// What an input must be, for a message: "input 1 'b' of program @sum must be f32[N,2]".
  std::string requirement(size_t input) const;

  /// Where the symbols of a dim have their values from: " with N = 3 (dim 0 of input 0 'a')".
  std::string sources_of(Place place, const std::function<std::string(Place)>& size_text) const;

 private:
  Tensor make_tensor(const Program& program, ValueId id) const;
  std::string name_of_input(size_t input) const;

  std::string program_;
  std::vector<std::string> symbols_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<Place> sources_;  ///< by symbol: its first occurrence alone
  std::vector<Place> checks_;   ///< all dims but the sources
};

/// Values of all symbols from the inputs' sizes (one vector of sizes an input). User's error naming the input, its type
/// and what was given when a size contradicts the type or another input's.
Bindings bind(const Program& program, const std::vector<std::vector<int64_t>>& sizes);

}  // namespace weft::ir
