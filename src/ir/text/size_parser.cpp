#include "ir/text/size_parser.h"

#include <algorithm>
#include <charconv>

namespace weft::ir {
namespace {

// Far above any real program.
constexpr size_t kMaxSymbolLength = 64;
constexpr size_t kMaxSymbolsInDim = 16;
constexpr int kMaxParentheses = 16;

}  // namespace

void SizeParser::fail(const Token& token, const std::string& message) const {
  error_at(source_, token.offset, message);
}

void SizeParser::fail_expected(std::string_view what) const {
  if (token_.kind == TokenKind::kEnd) fail(token_, fmt::format("expected {}, but the text ends", what));
  std::string found(token_.text.substr(0, 40));
  fail(token_, fmt::format("expected {}, but found '{}'{}", what, found, token_.text.size() > 40 ? "..." : ""));
}

bool SizeParser::accept_punct(char c) {
  if (!is_punct(c)) return false;
  advance();
  return true;
}

Token SizeParser::expect(TokenKind kind, std::string_view what) {
  if (token_.kind != kind) fail_expected(what);
  Token token = token_;
  advance();
  return token;
}

void SizeParser::expect_punct(char c) {
  if (!accept_punct(c)) fail_expected(fmt::format("'{}'", c));
}

void SizeParser::expect_word(std::string_view word) {
  if (!is_word(word)) fail_expected(fmt::format("'{}'", word));
  advance();
}

int64_t SizeParser::parse_integer() {
  Token token = expect(TokenKind::kInteger, "an integer");
  int64_t value = 0;
  auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
  if (error != std::errc()) fail(token, fmt::format("{} does not fit into 64 bits", token.text));
  return value;
}

// ---- sizes

Dim SizeParser::run() {
  Dim dim = parse_sum();
  if (token_.kind != TokenKind::kEnd) fail_expected("the end of the size");
  return dim;
}

bool SizeParser::accept_operator(std::string_view text) {
  if (token_.kind != TokenKind::kPunct || token_.text != text) return false;
  advance();
  return true;
}

/// A number or a symbol.
Dim SizeParser::parse_atom() {
  const Token token = token_;
  if (token.kind == TokenKind::kIdent) {
    if (token.text.size() > kMaxSymbolLength) fail(token, "this symbol's name is too long");
    if (token.text.find('.') != std::string_view::npos) fail(token, "a symbol's name has no '.'");
    advance_in_size();
    return Dim::symbol(std::string(token.text));
  }
  if (token.kind != TokenKind::kInteger) fail_expected("a size: a number, a symbol or an expression of these");
  int64_t number = 0;
  auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
  if (error != std::errc()) fail(token, fmt::format("{} does not fit into 64 bits", token.text));
  if (number < -kMaxDim || number > kMaxDim) fail(token, fmt::format("the size {} is outside 0..2^62", number));
  advance_in_size();
  return number;
}

Dim SizeParser::parse_factor(int depth) {
  if (!is_punct('(')) return parse_atom();
  if (depth == kMaxParentheses) fail(token_, fmt::format("parentheses are nested more than {} deep", kMaxParentheses));
  advance();
  Dim dim = parse_sum(depth + 1);
  if (!is_punct(')')) fail_expected("')'");
  advance_in_size();
  return dim;
}

/// Products and divisions, from left to right as in Python.
Dim SizeParser::parse_term(int depth) {
  const Token start = token_;
  Dim dim = parse_factor(depth);
  while (true) {
    if (accept_operator("//")) {
      const Token token = token_;
      const Dim divisor = parse_atom();
      if (!divisor.is_constant() || divisor.constant() < 1) fail(token, "a size is divided by a positive number");
      at(start, [&] { dim = floor_divide(dim, divisor.constant()); });
    } else if (accept_operator("*")) {
      const Dim factor = parse_factor(depth);
      at(start, [&] { dim = dim * factor; });
      if (dim.degree() > kMaxSymbolsInDim) fail(start, "this size has too many symbols");
    } else {
      return dim;
    }
  }
}

Dim SizeParser::parse_sum(int depth) {
  const Token start = token_;
  Dim dim = parse_term(depth);
  while (true) {
    const bool minus = is_punct('-');
    if (!minus && !is_punct('+')) return dim;
    advance();
    const Dim term = parse_term(depth);
    at(start, [&] { dim = minus ? dim - term : dim + term; });
  }
}

Dim SizeParser::parse_dim() {
  const Token start = token_;
  Dim dim = parse_sum();
  auto fits = [](int64_t number) { return number <= kMaxDim; };
  const bool all_fit = fits(dim.number()) && std::ranges::all_of(dim.terms(), fits, &Dim::Term::factor);
  if (dim.is_always_negative() || !all_fit) fail(start, fmt::format("the size {} is outside 0..2^62", to_string(dim)));
  return dim;
}

Dim parse_dim(std::string_view text) { return SizeParser(text).run(); }

}  // namespace weft::ir
