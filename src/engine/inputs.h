#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/program.h"
#include "runtime/tensor.h"

namespace weft::engine {

/// Binds a program's symbols to values from the sizes of its inputs, and checks types and sizes, in one pass over flat
/// lists.
class InputChecker {
 public:
  /// `symbols`: in the order wanted by values().
  InputChecker(const ir::Program& program, std::span<const std::string> symbols);

  /// The symbols' values. User's error naming the input, what it should be and what it is.
  std::vector<int64_t> values(std::span<const runtime::TensorRef> inputs) const;

 private:
  struct Size {
    size_t input, dim;
    int64_t factor;                ///< times ...
    std::vector<int64_t> symbols;  ///< ... these
  };
  /// Whether a dim is as large as its type says. A product that overflows fits no size.
  static bool fits(const Size& size, std::span<const int64_t> values, int64_t given);
  [[noreturn]] void complain(std::span<const runtime::TensorRef> inputs) const;

  const ir::Program& program_;
  std::vector<std::pair<size_t, size_t>> binders_;  ///< for each symbol, an input and a dim of it that is this symbol
  std::vector<Size> sizes_;
};

}  // namespace weft::engine
