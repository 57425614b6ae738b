#include "operator/extern_arguments.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "operator/signature.h"

namespace weft::torch_operator {
namespace {

using Kind = ExternArgument::Kind;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  ExternCall run() {
    ExternCall call;
    std::string_view path = take_while([](char c) { return is_name(c); });
    size_t first = path.find('.');
    size_t last = path.rfind('.');
    check(first != std::string_view::npos && last != first, "extern: '{}' names no operator, as aten.add.Tensor does",
          path);
    call.name = std::string(path.substr(0, first)) + "::" + std::string(path.substr(first + 1, last - first - 1));
    call.overload = path.substr(last + 1) == "default" ? "" : std::string(path.substr(last + 1));
    call.arguments = list('(', ')');
    skip_blanks();
    if (at_ != text_.size()) fail("the end");
    return call;
  }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_name(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
  }

  [[noreturn]] void fail(std::string_view expected) const {
    user_error("extern: expected {} at '{}' of {}", expected, text_.substr(std::min(at_, text_.size()), 20), text_);
  }

  template <typename Matches>
  std::string_view take_while(Matches matches) {
    size_t start = at_;
    while (at_ < text_.size() && matches(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }

  void skip_blanks() {
    take_while([](char c) { return c == ' '; });
  }

  bool accept(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(std::string(1, c));
  }

  std::vector<ExternArgument> list(char open, char close) {
    constexpr int kDeepest = 8;
    std::vector<ExternArgument> items;
    expect(open);
    if (++depth_ > kDeepest) fail("fewer brackets");
    if (!accept(close)) {
      do items.push_back(argument());
      while (accept(','));
      expect(close);
    }
    --depth_;
    return items;
  }

  ExternArgument argument() {
    skip_blanks();
    if (at_ >= text_.size()) fail("an argument");
    ExternArgument result;
    if (text_[at_] == '[') {
      result.kind = Kind::kList;
      result.items = list('[', ']');
    } else if (accept('%')) {
      result.kind = Kind::kOperand;
      result.integer = integer();
    } else if (accept('\'')) {
      result.kind = Kind::kText;
      result.text = take_while([](char c) { return c != '\''; });
      expect('\'');
    } else if (text_[at_] == '-' || is_digit(text_[at_])) {
      number(result);
    } else {
      word(result);
    }
    return result;
  }

  int64_t integer() {
    int64_t value = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("an integer");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  void number(ExternArgument& result) {
    size_t start = at_;
    bool negative = accept('-');
    std::string_view digits = take_while([this](char c) {
      return is_name(c) || ((c == '-' || c == '+') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E'));
    });
    if (digits == "inf") {
      result.kind = Kind::kNumber;
      result.number = negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
      return;
    }
    at_ = start;
    if (std::ranges::all_of(digits, is_digit)) return product(result, integer());
    result.kind = Kind::kNumber;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), result.number);
    if (error != std::errc()) fail("a number");
    at_ = static_cast<size_t>(end - text_.data());
  }

  /// `size(0, 1)`, or `3*size(0, 1)*size(2, 0)`.
  void product(ExternArgument& result, int64_t factor) {
    result.kind = Kind::kInteger;
    result.integer = factor;
    while (accept('*')) {
      skip_blanks();
      if (take_while(is_name) != "size") fail("size(operand, dim)");
      size(result);
    }
  }

  void size(ExternArgument& result) {
    expect('(');
    int64_t operand = integer();
    expect(',');
    skip_blanks();
    result.sizes.emplace_back(operand, integer());
    expect(')');
  }

  void word(ExternArgument& result) {
    std::string_view name = take_while(is_name);
    if (name.empty()) fail("an argument");
    if (name == "size") {
      size(result);
      return product(result, 1);
    }
    if (name == "None") return;
    result.kind = Kind::kBool;
    result.integer = name == "true";
    if (name == "true" || name == "false") return;
    if (name == "inf" || name == "nan") {
      result.kind = Kind::kNumber;
      result.number =
          name == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
      return;
    }
    result.kind = Kind::kWord;
    result.text = name;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

[[noreturn]] void misfit(const ExternArgument& argument, const c10::Type& type) {
  static constexpr std::array kNames = {"None",   "a bool", "an integer", "a number",
                                        "a text", "a word", "an operand", "a list"};
  user_error("extern: {} can't be an argument of type {}",
             argument.kind == Kind::kWord ? argument.text : kNames[static_cast<size_t>(argument.kind)], type.str());
}

const at::Tensor& operand(int64_t index, const std::vector<at::Tensor>& operands) {
  check(index >= 0 && index < static_cast<int64_t>(operands.size()), "extern: %{} names no operand: there are {}",
        index, operands.size());
  return operands[static_cast<size_t>(index)];
}

int64_t integer_of(const ExternArgument& argument, const std::vector<at::Tensor>& operands) {
  int64_t result = argument.integer;
  for (auto [which, dim] : argument.sizes) {
    const at::Tensor& tensor = operand(which, operands);
    check(dim >= 0 && dim < tensor.dim(), "extern: size({}, {}): the tensor has {} dims", which, dim, tensor.dim());
    result *= tensor.size(dim);
  }
  return result;
}

/// Dtypes, layouts and memory formats are numbers to the dispatcher.
std::optional<int64_t> number_of_word(std::string_view word) {
  if (std::optional<DType> dtype = dtype_named(word)) return static_cast<int64_t>(scalar_type(*dtype));
  if (word == "strided") return static_cast<int64_t>(at::kStrided);
  if (word == "contiguous_format") return static_cast<int64_t>(at::MemoryFormat::Contiguous);
  if (word == "preserve_format") return static_cast<int64_t>(at::MemoryFormat::Preserve);
  if (word == "channels_last") return static_cast<int64_t>(at::MemoryFormat::ChannelsLast);
  if (word == "channels_last_3d") return static_cast<int64_t>(at::MemoryFormat::ChannelsLast3d);
  return std::nullopt;
}

c10::IValue to_integer(const ExternArgument& argument, const c10::Type& type, const std::vector<at::Tensor>& operands) {
  if (argument.kind == Kind::kInteger) return integer_of(argument, operands);
  if (argument.kind == Kind::kWord)
    if (std::optional<int64_t> number = number_of_word(argument.text)) return *number;
  misfit(argument, type);
}

c10::IValue to_list(const ExternArgument& argument, const c10::TypePtr& type, const std::vector<at::Tensor>& operands) {
  c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
  c10::impl::GenericList list(element);
  if (argument.kind != Kind::kList) misfit(argument, *type);
  for (const ExternArgument& item : argument.items) list.push_back(to_value(item, element, operands));
  return list;
}

}  // namespace

ExternCall parse_extern_call(std::string_view text) { return Parser(text).run(); }

c10::IValue to_value(const ExternArgument& argument, const c10::TypePtr& type,
                     const std::vector<at::Tensor>& operands) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      if (argument.kind == Kind::kNone) return {};
      return to_value(argument, type->expectRef<c10::OptionalType>().getElementType(), operands);
    case c10::TypeKind::TensorType:
      if (argument.kind == Kind::kOperand) return operand(argument.integer, operands);
      break;
    case c10::TypeKind::ListType:
      return to_list(argument, type, operands);
    case c10::TypeKind::BoolType:
      if (argument.kind == Kind::kBool) return argument.integer != 0;
      break;
    case c10::TypeKind::NumberType:
      if (argument.kind == Kind::kBool) return argument.integer != 0;
      if (argument.kind == Kind::kNumber) return argument.number;
      return to_integer(argument, *type, operands);
    case c10::TypeKind::FloatType:
      if (argument.kind == Kind::kNumber) return argument.number;
      if (argument.kind == Kind::kInteger) return static_cast<double>(integer_of(argument, operands));
      break;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return to_integer(argument, *type, operands);
    case c10::TypeKind::StringType:
      if (argument.kind == Kind::kText) return argument.text;
      break;
    case c10::TypeKind::DeviceObjType:
      if (argument.kind == Kind::kWord) return c10::Device(argument.text);
      break;
    default:
      break;
  }
  misfit(argument, *type);
}

}  // namespace weft::torch_operator
