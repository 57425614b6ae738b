#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::ir {

/// The call of an extern op, `aten.convolution.default(%0, %1, None, [1, 1], false)`, whose operands have these sizes.
class CallText {
 public:
  using Sizes = std::vector<int64_t>;

  /// `reader` begins messages. Operands whose sizes are not known may have none: then no argument may name one.
  CallText(std::string_view reader, std::string_view text, std::vector<Sizes> operands);

  const std::string& text() const { return text_; }
  /// The operator with its overload: `aten.convolution.default`.
  std::string_view name() const { return std::string_view(text_).substr(0, text_.find('(')); }
  size_t count() const { return arguments_.size(); }

  // Argument i. User's error that quotes the call if the argument is something else.
  bool flag(size_t i) const;
  int64_t integer(size_t i) const;
  bool has_none(size_t i) const { return argument(i) == "None"; }
  /// Whether argument i equals this number, written as an integer or not.
  bool has_number(size_t i, double number) const;
  Sizes integers(size_t i) const;
  std::vector<bool> flags(size_t i) const;
  /// Argument i, a text, without its quotes.
  std::string_view word(size_t i) const;
  /// The number of the operand that is argument i, or none for `None`.
  std::optional<size_t> operand(size_t i) const;

  /// The user's error for a call with arguments that have no lowering.
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  std::string_view argument(size_t i) const;
  /// `2`, `-1`, `size(0, 2)`, or a product of these: `3*size(0, 1)`.
  int64_t number_of(std::string_view text) const;

  std::string reader_, text_;
  std::vector<std::string> arguments_;
  std::vector<Sizes> operands_;
};

}  // namespace weft::ir
