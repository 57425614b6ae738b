#include "programs/extern_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "operator/signature.h"
#include "programs/imported_run.h"

namespace weft::programs {

using c10::IValue;
using record::UnsupportedError;

std::string python_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "torch.float32";
    case at::kDouble:
      return "torch.float64";
    case at::kHalf:
      return "torch.float16";
    case at::kBFloat16:
      return "torch.bfloat16";
    case at::kComplexFloat:
      return "torch.complex64";
    case at::kComplexDouble:
      return "torch.complex128";
    case at::kComplexHalf:
      return "torch.complex32";
    default:
      std::string name = c10::toString(type);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      return "torch." + name;
  }
}

bool is_code(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) return is_code(optional->getElementType());
  auto kind = type->kind();
  return kind == c10::TypeKind::ScalarTypeType || kind == c10::TypeKind::LayoutType ||
         kind == c10::TypeKind::MemoryFormatType;
}

namespace {

class Speller {
 public:
  Speller(const c10::OperatorHandle& op, record::SizeFit& sizes, const std::vector<ir::Shape>& operand_sizes,
          const std::function<size_t(const at::Tensor&)>& operand_of,
          const std::function<size_t(const ir::Dim&)>& carrier)
      : op_(op), sizes_(sizes), operand_sizes_(operand_sizes), operand_of_(operand_of), carrier_(carrier) {}

  std::string operator()(const IValue& a, const IValue& b, const c10::TypePtr& type) {
    if (a.tagKind() != b.tagKind()) throw Mismatch();
    if (auto optional = type->cast<c10::OptionalType>(); optional && !a.isNone())
      return (*this)(a, b, optional->getElementType());
    if (a.isTensor()) return tensor(a.toTensor());
    if (a.isNone()) return "None";
    if (a.isBool()) return same(a.toBool() == b.toBool(), a.toBool() ? "true" : "false");
    if (a.isInt()) return is_code(type) ? same(a.toInt() == b.toInt(), code(a.toInt(), type)) : size(a, b);
    if (a.isDouble())
      return same(std::bit_cast<int64_t>(a.toDouble()) == std::bit_cast<int64_t>(b.toDouble()), number(a.toDouble()));
    if (a.isString() && a.toStringRef().find('\'') == std::string::npos)
      return same(a.toStringRef() == b.toStringRef(), "'" + a.toStringRef() + "'");
    // Operations of device weft run on the CPU.
    if (a.isDevice() && (a.toDevice().is_cpu() || a.toDevice().is_privateuseone())) return "cpu";
    if (a.isList()) return list(a, b, type);
    throw UnsupportedError("an argument of type " + a.tagKind() + " of an operation that PyTorch runs");
  }

 private:
  static std::string same(bool are_same, std::string text) {
    if (!are_same) throw Mismatch();
    return text;
  }

  static std::string code(int64_t value, const c10::TypePtr& type) {
    if (type->kind() == c10::TypeKind::ScalarTypeType) {
      auto dtype = torch_operator::dtype_of(static_cast<at::ScalarType>(value));
      if (dtype) return std::string(name_of(*dtype));
      throw UnsupportedError("an argument " + python_name(static_cast<at::ScalarType>(value)) +
                             " of an operation that PyTorch runs");
    }
    if (type->kind() == c10::TypeKind::LayoutType) {
      if (static_cast<at::Layout>(value) == at::kStrided) return "strided";
      throw UnsupportedError("a layout of an operation that PyTorch runs");
    }
    switch (static_cast<at::MemoryFormat>(value)) {
      case at::MemoryFormat::Contiguous:
        return "contiguous_format";
      case at::MemoryFormat::Preserve:
        return "preserve_format";
      case at::MemoryFormat::ChannelsLast:
        return "channels_last";
      case at::MemoryFormat::ChannelsLast3d:
        return "channels_last_3d";
      default:
        throw UnsupportedError("a memory format of an operation that PyTorch runs");
    }
  }

  /// A number as Python prints it: with digits that read back as the same number, and a point or an exponent.
  static std::string number(double value) {
    std::string text = fmt::format("{}", value);
    return text.find_first_of(".enN") == std::string::npos ? text + ".0" : text;
  }

  std::string tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) return "None";
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
      throw UnsupportedError(printed_name(op_.operator_name()) + " with a number in place of a tensor");
    return fmt::format("%{}", operand_of_(tensor));
  }

  std::string size(const IValue& a, const IValue& b) {
    if (a.toInt() != b.toInt() && is_negative(a.toInt(), b.toInt())) throw Mismatch();  // no operand has such a size
    const ir::Dim found = size_of(sizes_, a.toInt(), b.toInt());
    if (found.is_constant()) return std::to_string(found.constant());
    std::string known = place(found);
    return known.empty() ? fmt::format("size({}, 0)", carrier_(found)) : known;
  }

  /// The text for an operand's size that equals `wanted`; empty if no operand has such a size.
  std::string place(const ir::Dim& wanted) {
    for (size_t i = 0; i < operand_sizes_.size(); ++i) {
      for (size_t dim = 0; dim < operand_sizes_[i].size(); ++dim) {
        if (operand_sizes_[i][dim] == wanted) return fmt::format("size({}, {})", i, dim);
      }
    }
    return "";
  }

  std::string list(const IValue& a, const IValue& b, const c10::TypePtr& type) {
    auto items = a.toListRef(), others = b.toListRef();
    if (items.size() != others.size()) throw Mismatch();
    auto of = type->cast<c10::ListType>();
    std::vector<std::string> texts;
    for (size_t i = 0; i < items.size(); ++i)
      texts.push_back((*this)(items[i], others[i], of ? of->getElementType() : type));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }

  const c10::OperatorHandle& op_;
  record::SizeFit& sizes_;
  const std::vector<ir::Shape>& operand_sizes_;
  const std::function<size_t(const at::Tensor&)>& operand_of_;
  const std::function<size_t(const ir::Dim&)>& carrier_;
};

}  // namespace

std::string extern_text(const c10::OperatorHandle& op, const std::vector<IValue>& arguments,
                        const std::vector<IValue>& others, record::SizeFit& sizes,
                        const std::vector<ir::Shape>& operand_sizes,
                        const std::function<size_t(const at::Tensor&)>& operand_of,
                        const std::function<size_t(const ir::Dim&)>& carrier) {
  Speller spell(op, sizes, operand_sizes, operand_of, carrier);
  std::vector<std::string> texts;
  for (size_t i = 0; i < arguments.size(); ++i)
    texts.push_back(spell(arguments[i], others[i], op.schema().arguments()[i].real_type()));
  return fmt::format("{}({})", printed_name(op.operator_name()), fmt::join(texts, ", "));
}

}  // namespace weft::programs
