#include "mutate.h"

#include <array>
#include <random>
#include <vector>

#include "ir/program.h"
#include "ir/text/lexer.h"

namespace weft::fuzz {
namespace {

using ir::Token;
using ir::TokenKind;

constexpr std::array<std::string_view, 10> kDTypes = {"bool", "i8",  "u8",   "i16", "i32",
                                                      "i64",  "f16", "bf16", "f32", "f64"};
constexpr std::array<std::string_view, 12> kNumbers = {"0", "1",   "2",   "3",    "7",  "-1",
                                                       "4", "0.5", "inf", "true", "16", "4611686018427387904"};
constexpr std::array<std::string_view, 26> kWords = {
    "T",       "B",      "T*B",         "2*T",    "T+1",  "T-1",   "(T+1)//2", "dim(T)", "dim(T-1)",
    "reverse", "length", "dim",         "perm",   "low",  "start", "limit",    "size",   "dims",
    "N",       "ragged", "transpose_b", "groups", "then", "else",  "do",       "carry"};

class Mutator {
 public:
  Mutator(std::string_view text, uint64_t seed) : text_(text), random_(seed) {}

  std::string run() {
    if (below(3) == 0) return mutate_line();
    try {
      ir::Lexer lexer(text_);
      for (Token token = lexer.next(); token.kind != TokenKind::kEnd; token = lexer.next()) tokens_.push_back(token);
    } catch (const Error&) {
      // The tokens before the error can be mutated all the same.
    }
    if (tokens_.empty()) return "";
    const Token& token = tokens_[below(tokens_.size())];
    return with(token.offset, token.text.size(), std::string(replacement(token)));
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }

  std::string with(size_t offset, size_t length, const std::string& text) const {
    return std::string(text_.substr(0, offset)) + text + std::string(text_.substr(offset + length));
  }

  template <size_t n>
  std::string_view pick(const std::array<std::string_view, n>& from) {
    return from[below(n)];
  }

  /// A token of the same kind from the text, or from a table.
  std::string_view replacement(const Token& token) {
    if (token.kind == TokenKind::kIdent && below(2)) {
      if (dtype_named(token.text)) return pick(kDTypes);
      if (auto code = ir::op_named(token.text)) return op_like(*code);
      return pick(kWords);
    }
    if ((token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) && below(2)) return pick(kNumbers);
    std::vector<std::string_view> same;
    for (const Token& other : tokens_)
      if (other.kind == token.kind) same.push_back(other.text);
    return same[below(same.size())];
  }

  /// Mostly an op with as many operands.
  std::string_view op_like(ir::OpCode code) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      auto other = static_cast<ir::OpCode>(below(ir::kOpCount));
      if (ir::info(other).arity == ir::info(code).arity) return ir::info(other).name;
    }
    return ir::info(static_cast<ir::OpCode>(below(ir::kOpCount))).name;
  }

  std::string mutate_line() {
    std::vector<std::string> lines;
    for (size_t at = 0; at < text_.size();) {
      size_t end = std::min(text_.find('\n', at), text_.size() - 1) + 1;
      lines.emplace_back(text_.substr(at, end - at));
      at = end;
    }
    if (lines.empty()) return "";
    size_t i = below(lines.size());
    size_t j = below(lines.size());
    switch (below(4)) {
      case 0:
        lines[i].clear();
        break;
      case 1:
        std::swap(lines[i], lines[j]);
        break;
      case 2:
        lines.insert(lines.begin() + static_cast<int64_t>(j), lines[i]);
        break;
      default:
        lines.insert(lines.begin() + static_cast<int64_t>(j), new_op(lines[i]));
        break;
    }
    std::string out;
    for (const std::string& line : lines) out += line;
    return out;
  }

  /// The line's op under a new result's name, so that it may be inserted beside the original.
  std::string new_op(std::string line) {
    size_t name = line.find('%');
    if (name == line.npos) return line;
    return line.insert(name + 1, "n" + std::to_string(below(100)));
  }

  std::string_view text_;
  std::mt19937_64 random_;
  std::vector<Token> tokens_;
};

}  // namespace

std::string mutate(std::string_view text, uint64_t seed) { return Mutator(text, seed).run(); }

}  // namespace weft::fuzz
