#include "ir/text/parser.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ir/text/size_parser.h"
#include "ir/verifier.h"

namespace weft::ir {
namespace {

// Bounds on what a text can make the parser allocate, far above any real program.
constexpr size_t kMaxText = size_t{64} << 20;
constexpr size_t kMaxTypeParts = size_t{1} << 22;  // dims and symbols in the types of all values together

class Parser : private SizeParser {
 public:
  explicit Parser(std::string_view source) : SizeParser(source) {}

  Program run() {
    Token start = token_;
    expect_word("program");
    Token name = expect(TokenKind::kGlobal, "the program's name, as @main");
    program_.name = name.text.substr(1);
    parse_inputs();
    expect_punct('{');
    parse_ops(program_.body, 0);
    expect_word("return");
    if (token_.kind == TokenKind::kValue) parse_results();
    expect_punct('}');
    if (token_.kind != TokenKind::kEnd) fail_expected("the end of the text");
    at(start, [&] { verify(program_); });
    return std::move(program_);
  }

 private:
  // ---- names

  ValueId define(const Token& name, Type type) {
    type_parts_ += 1 + type.shape.size();
    for (const Dim& dim : type.shape)
      for (const Dim::Term& term : dim.terms()) type_parts_ += term.atoms.size();
    if (type_parts_ > kMaxTypeParts) fail(name, "the program is too large");
    std::string_view text = name.text.substr(1);
    if (visible_.contains(text)) fail(name, fmt::format("{} is already defined", name.text));
    bool is_number = text.find_first_not_of("0123456789") == std::string_view::npos;
    ValueId id = program_.new_value(std::move(type), is_number ? "" : std::string(text));
    visible_.emplace(text, id);
    scope_.push_back(text);
    return id;
  }

  ValueId look_up(const Token& name) const {
    std::string_view text = name.text.substr(1);
    auto it = visible_.find(text);
    if (it != visible_.end()) return it->second;
    if (ended_.contains(text)) fail(name, fmt::format("{} is defined in a region that has ended here", name.text));
    fail(name, fmt::format("{} is not defined", name.text));
  }

  void end_scope(size_t outer) {
    for (size_t i = outer; i < scope_.size(); ++i) {
      visible_.erase(scope_[i]);
      ended_.insert(scope_[i]);
    }
    scope_.resize(outer);
  }

  /// `%a, %b`, at least one.
  std::vector<ValueId> parse_values() {
    std::vector<ValueId> ids;
    do ids.push_back(look_up(expect(TokenKind::kValue, "a value, as %x")));
    while (accept_punct(','));
    return ids;
  }

  // ---- types

  Type parse_type() {
    Token name = expect(TokenKind::kIdent, "a type, as f32[T,B,16]");
    auto dtype = dtype_named(name.text);
    if (!dtype)
      fail(name, fmt::format("there is no dtype '{}'; there are bool, i8, u8, i16, i32, i64, f16, bf16, f32, f64",
                             name.text.substr(0, 40)));
    Type type{*dtype, {}};
    expect_punct('[');
    if (accept_punct(']')) return type;
    do {
      if (type.rank() == kMaxRank) fail(token_, fmt::format("a type has at most {} dims", kMaxRank));
      type.shape.push_back(parse_dim());
    } while (accept_punct(','));
    expect_punct(']');
    return type;
  }

  // ---- attributes

  std::vector<int64_t> parse_integer_list() {
    std::vector<int64_t> list;
    expect_punct('[');
    if (accept_punct(']')) return list;
    do list.push_back(parse_integer());
    while (accept_punct(','));
    expect_punct(']');
    return list;
  }

  double parse_float() {
    Token token = expect(TokenKind::kFloat, "a number");
    if (token.text == "-inf") return -std::numeric_limits<double>::infinity();
    double value = 0;
    auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    if (error != std::errc()) fail(token, fmt::format("{} is outside the range of f64", token.text.substr(0, 40)));
    return value;
  }

  std::string parse_string() {
    Token token = expect(TokenKind::kString, "a string");
    std::string value;
    std::string_view text = token.text.substr(1, token.text.size() - 2);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        value += text[i];
      } else if (text[++i] == '"' || text[i] == '\\') {
        value += text[i];
      } else {
        unsigned code = 256;
        if (text[i] == 'x' && i + 2 < text.size()) {
          auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, code, 16);
          if (error != std::errc() || end != text.data() + i + 3) code = 256;
        }
        if (code > 255) fail(token, "a string's escapes are \\\", \\\\ and \\xHH");
        value += static_cast<char>(code);
        i += 2;
      }
    }
    return value;
  }

  Attr parse_word_attr() {
    Token word = token_;
    advance();
    if (word.text == "true") return true;
    if (word.text == "false") return false;
    if (word.text == "inf") return std::numeric_limits<double>::infinity();
    if (word.text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (word.text == "dim") {
      expect_punct('(');
      Dim dim = parse_sum();  // may be a number, which may be negative
      expect_punct(')');
      return dim;
    }
    token_ = word;
    fail_expected("an attribute's value: true, 3, 0.5, inf, nan, [0, 1], \"text\" or dim(T)");
  }

  Attr parse_attr() {
    if (token_.kind == TokenKind::kInteger) return parse_integer();
    if (token_.kind == TokenKind::kFloat) return parse_float();
    if (token_.kind == TokenKind::kString) return parse_string();
    if (token_.kind == TokenKind::kIdent) return parse_word_attr();
    if (is_punct('[')) return parse_integer_list();
    fail_expected("an attribute's value: true, 3, 0.5, inf, nan, [0, 1], \"text\" or dim(T)");
  }

  void parse_attrs(Attrs& attrs) {
    expect_punct('{');
    if (accept_punct('}')) return;
    do {
      Token name = expect(TokenKind::kIdent, "an attribute's name");
      expect_punct('=');
      if (!attrs.emplace(std::string(name.text), parse_attr()).second)
        fail(name, fmt::format("the attribute '{}' is given twice", name.text));
    } while (accept_punct(','));
    expect_punct('}');
  }

  // ---- ops

  void parse_inputs() {
    expect_punct('(');
    if (accept_punct(')')) return;
    do {
      Token name = expect(TokenKind::kValue, "an input, as %x: f32[T,B]");
      expect_punct(':');
      program_.body.args.push_back(define(name, parse_type()));
    } while (accept_punct(','));
    expect_punct(')');
  }

  /// `%a, %b in %x`: at least one result; `in %x` names the input whose memory `%b` takes.
  void parse_results() {
    do {
      std::vector<ValueId>& results = program_.body.results;
      results.push_back(look_up(expect(TokenKind::kValue, "a value, as %x")));
      if (!is_word("in")) continue;
      advance();
      Token name = expect(TokenKind::kValue, "the input whose memory the result takes, as %x");
      const auto& inputs = program_.body.args;
      const auto input = std::ranges::find(inputs, look_up(name));
      if (input == inputs.end()) fail(name, fmt::format("return: {} is no input of the program", name.text));
      program_.donations.push_back({static_cast<size_t>(input - inputs.begin()), results.size() - 1});
    } while (accept_punct(','));
  }

  /// Ops until `return` or `yield`.
  void parse_ops(Block& block, int64_t depth) {
    while (!is_word(depth == 0 ? "return" : "yield")) {
      if (token_.kind != TokenKind::kValue && !is_word("scan") && !is_word("cond") && !is_word("while"))
        fail_expected(depth == 0 ? "an op, as %a = neg %b, or 'return'" : "an op, as %a = neg %b, or 'yield'");
      parse_op(block, depth);
    }
  }

  void parse_op(Block& block, int64_t depth) {
    std::vector<Token> names;
    if (token_.kind == TokenKind::kValue) {
      do names.push_back(expect(TokenKind::kValue, "a result's name, as %a"));
      while (accept_punct(','));
      expect_punct('=');
    }
    Token word = expect(TokenKind::kIdent, "an op's name");
    auto code = op_named(word.text);
    if (!code) fail(word, fmt::format("there is no op named '{}'", word.text.substr(0, 40)));
    Op op{*code, {}, {}, {}, {}};
    if (*code == OpCode::kScan) {
      parse_scan(op, word, depth);
    } else if (*code == OpCode::kCond) {
      parse_cond(op, word, depth);
    } else if (*code == OpCode::kWhile) {
      parse_while(op, word, depth);
    } else {
      if (token_.kind == TokenKind::kValue) op.operands = parse_values();
      if (is_punct('{')) parse_attrs(op.attrs);
      if (is_constant(*code)) widen_constant(op, word);
    }
    finish(op, word, names);
    block.ops.push_back(std::move(op));
  }

  /// `{value = 3}` is the number 3.0.
  void widen_constant(Op& op, const Token& word) const {
    auto it = op.attrs.find("value");
    if (it == op.attrs.end()) return;
    if (const bool* flag = std::get_if<bool>(&it->second)) it->second = *flag ? 1.0 : 0.0;
    const int64_t* integer = std::get_if<int64_t>(&it->second);
    if (!integer) return;
    constexpr int64_t kExact = int64_t{1} << 53;
    if (*integer > kExact || *integer < -kExact)
      fail(word, fmt::format("constant: {} is beyond 2^53, where f64 is not exact", *integer));
    it->second = static_cast<double>(*integer);
  }

  /// Reads the declared types, if any, compares them with the inferred ones, and defines the results.
  void finish(Op& op, const Token& word, const std::vector<Token>& names) {
    std::vector<Type> declared;
    std::vector<Token> places;
    if (accept_punct(':')) {
      do {
        places.push_back(token_);
        declared.push_back(parse_type());
      } while (accept_punct(','));
    }
    std::vector<Type> types;
    at(word, [&] { types = infer_types(program_, op, declared); });
    if (types.size() != names.size())
      fail(word, fmt::format("{} gives {} results, but {} are named", word.text, types.size(), names.size()));
    if (!declared.empty() && declared.size() != types.size())
      fail(places[0],
           fmt::format("{} gives {} results, but {} types follow", word.text, types.size(), declared.size()));
    for (size_t i = 0; i < declared.size(); ++i)
      if (declared[i] != types[i])
        fail(places[i], fmt::format("{} gives {}, not {}", word.text, to_string(types[i]), to_string(declared[i])));
    for (size_t i = 0; i < types.size(); ++i) op.results.push_back(define(names[i], std::move(types[i])));
  }

  /// `(%arg = %operand, ...)`: args are defined only after all operands were looked up.
  void parse_pairs(std::vector<Token>& args, std::vector<Token>& operands) {
    expect_punct('(');
    if (accept_punct(')')) return;
    do {
      args.push_back(expect(TokenKind::kValue, "a region's argument, as %h = %h0"));
      expect_punct('=');
      operands.push_back(expect(TokenKind::kValue, "a value, as %x"));
    } while (accept_punct(','));
    expect_punct(')');
  }

  std::vector<ValueId> parse_yield_list(std::string_view word) {
    expect_word(word);
    expect_punct('(');
    if (accept_punct(')')) return {};
    std::vector<ValueId> ids = parse_values();
    expect_punct(')');
    return ids;
  }

  void parse_scan_head(Op& op, std::vector<Token>& args) {
    if (is_word("reverse")) {
      advance();
      op.attrs.emplace("reverse", true);
    }
    expect_word("length");
    op.attrs.emplace("length", parse_dim());
    std::optional<Token> batch_sizes;
    if (is_word("ragged")) batch_sizes = parse_ragged(op);
    Token attrs = token_;
    if (is_punct('{')) parse_attrs(op.attrs);
    if (!batch_sizes && (op.has("rows") || op.has("packed")))
      fail(attrs, "scan: a ragged scan is written as ragged(%batch_sizes, B, N)");
    std::vector<Token> operands;
    expect_word("carry");
    parse_pairs(args, operands);
    op.attrs.insert_or_assign("carries", static_cast<int64_t>(args.size()));
    expect_word("xs");
    parse_pairs(args, operands);
    if (batch_sizes) operands.push_back(*batch_sizes);
    for (const Token& operand : operands) op.operands.push_back(look_up(operand));
  }

  /// `ragged(%batch_sizes, B, N)`.
  Token parse_ragged(Op& op) {
    advance();
    expect_punct('(');
    Token batch_sizes = expect(TokenKind::kValue, "the batch sizes, as %batch_sizes");
    expect_punct(',');
    op.attrs.emplace("rows", parse_symbol());
    expect_punct(',');
    op.attrs.emplace("packed", parse_symbol());
    expect_punct(')');
    return batch_sizes;
  }

  Dim parse_symbol() {
    Token start = token_;
    Dim dim = parse_dim();
    if (!dim.is_symbol()) fail(start, fmt::format("ragged: expected a symbol, but found {}", to_string(dim)));
    return dim;
  }

  void check_depth(const Token& word, int64_t depth) const {
    if (depth >= kMaxRegionDepth) fail(word, fmt::format("regions are nested more than {} deep", kMaxRegionDepth));
  }

  /// `{ ops  yield %a, %b }`.
  void parse_region(Block& region, int64_t depth) {
    expect_punct('{');
    parse_ops(region, depth + 1);
    expect_word("yield");
    if (token_.kind == TokenKind::kValue) region.results = parse_values();
    expect_punct('}');
  }

  void parse_cond(Op& op, const Token& word, int64_t depth) {
    check_depth(word, depth);
    op.operands.push_back(look_up(expect(TokenKind::kValue, "the predicate, as %p")));
    if (is_punct('{')) parse_attrs(op.attrs);
    for (std::string_view branch : {"then", "else"}) {
      expect_word(branch);
      size_t outer = scope_.size();
      parse_region(op.regions.emplace_back(), depth);
      end_scope(outer);
    }
  }

  void parse_while(Op& op, const Token& word, int64_t depth) {
    check_depth(word, depth);
    if (is_punct('{')) parse_attrs(op.attrs);
    std::vector<Token> args, operands;
    expect_word("carry");
    parse_pairs(args, operands);
    for (const Token& operand : operands) op.operands.push_back(look_up(operand));
    for (size_t i = 0; i < 2; ++i) {
      if (i == 1) {
        Token place = token_;
        expect_word("do");
        parse_args(args);
        if (args.size() != operands.size())
          fail(place, fmt::format("while: {} carries go in, but its body takes {}", operands.size(), args.size()));
      }
      size_t outer = scope_.size();
      Block region;
      for (size_t k = 0; k < args.size(); ++k)
        region.args.push_back(define(args[k], Type(program_.type(op.operands[k]))));
      parse_region(region, depth);
      end_scope(outer);
      op.regions.push_back(std::move(region));
    }
  }

  /// `(%a, %b)`.
  void parse_args(std::vector<Token>& args) {
    args.clear();
    expect_punct('(');
    if (accept_punct(')')) return;
    do args.push_back(expect(TokenKind::kValue, "a region's argument, as %h"));
    while (accept_punct(','));
    expect_punct(')');
  }

  void parse_scan(Op& op, const Token& word, int64_t depth) {
    check_depth(word, depth);
    std::vector<Token> args;
    parse_scan_head(op, args);
    auto carries = static_cast<size_t>(op.attr<int64_t>("carries"));
    std::optional<Ragged> ragged;
    if (op.has("rows")) ragged = Ragged{op.operands.back(), op.attr<Dim>("rows"), op.attr<Dim>("packed")};
    size_t outer = scope_.size();
    Block region;
    for (size_t i = 0; i < args.size(); ++i) {
      Type type = program_.type(op.operands[i]);
      if (i >= carries) {
        if (type.rank() == 0)
          fail(args[i], fmt::format("scan: an xs operand is {}, which has no steps", to_string(type)));
        type = step_of(type, ragged);
      }
      region.args.push_back(define(args[i], std::move(type)));
    }
    expect_punct('{');
    parse_ops(region, depth + 1);
    Token yield = token_;
    expect_word("yield");
    region.results = parse_yield_list("carry");
    if (region.results.size() != carries)
      fail(yield, fmt::format("scan: {} carries go in, but {} are yielded", carries, region.results.size()));
    std::vector<ValueId> ys = parse_yield_list("ys");
    region.results.insert(region.results.end(), ys.begin(), ys.end());
    expect_punct('}');
    end_scope(outer);
    op.regions.push_back(std::move(region));
  }

  Program program_;
  std::unordered_map<std::string_view, ValueId> visible_;
  std::unordered_set<std::string_view> ended_;
  std::vector<std::string_view> scope_;  ///< visible names in order of definition
  size_t type_parts_ = 0;
};

}  // namespace

Program parse(std::string_view text) {
  check(text.size() <= kMaxText, "line 1, column 1: the text has {} bytes; at most {} are read", text.size(), kMaxText);
  return Parser(text).run();
}

}  // namespace weft::ir
