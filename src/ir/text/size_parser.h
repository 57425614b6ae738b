#pragma once

#include <string>
#include <string_view>

#include "ir/program.h"
#include "ir/text/lexer.h"

namespace weft::ir {

/// Reads a text token by token, and parses sizes in it. Limits what a text can make it allocate.
class SizeParser {
 public:
  explicit SizeParser(std::string_view source) : source_(source), lexer_(source) { advance(); }

  /// A size, and nothing behind it.
  Dim run();

 protected:
  void advance() { token_ = lexer_.next(); }
  [[noreturn]] void fail(const Token& token, const std::string& message) const;
  [[noreturn]] void fail_expected(std::string_view what) const;

  bool is_punct(char c) const { return token_.kind == TokenKind::kPunct && token_.text[0] == c; }
  bool is_word(std::string_view word) const { return token_.kind == TokenKind::kIdent && token_.text == word; }
  bool accept_punct(char c);
  Token expect(TokenKind kind, std::string_view what);
  void expect_punct(char c);
  void expect_word(std::string_view word);

  /// Runs `action`; a user's error in it gets the token's line and column.
  template <typename Action>
  void at(const Token& token, Action action) const {
    try {
      action();
    } catch (const Error& error) {
      fail(token, error.what());
    }
  }

  int64_t parse_integer();
  /// A size: `T`, `4*T*B`, `(T+1)//2`.
  Dim parse_dim();
  /// As parse_dim, but a negative number is allowed.
  Dim parse_sum(int depth = 0);

  std::string_view source_;
  Lexer lexer_;
  Token token_;

 private:
  // Reads the next token behind a part of a size, which the token may continue.
  void advance_in_size() { token_ = lexer_.next_in_size(); }
  bool accept_operator(std::string_view text);
  Dim parse_atom();
  Dim parse_factor(int depth);
  Dim parse_term(int depth);
};

/// Parses what Dim::to_string() wrote. User's error on other text.
Dim parse_dim(std::string_view text);

}  // namespace weft::ir
