#pragma once

#include <complex>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "importer/region.h"

namespace weft::importer {

/// A complex value as its real and its imaginary part, which have the same type. A value without an imaginary part is
/// real: matrix products by an imaginary part of zeros are then left out.
///
/// PyTorch's derivative of a real loss L by a complex value is dL/dre + i dL/dim: the derivatives by the two parts.
struct Complex {
  Value re;
  std::optional<Value> im;
};

/// An argument of an ATen call among whose tensors or numbers some are complex.
using ComplexArgument = std::variant<Argument, Complex, std::complex<double>, std::vector<Complex>>;

using ComplexResult = std::variant<Complex, Value>;

/// Whether `import_complex` knows the op (with its overload). It may still refuse the arguments.
bool knows_complex(std::string_view op);

/// One ATen op of which an argument or the result is complex, as real ops on the parts. `result`: the result's type; if
/// it is complex (`is_complex`), the type of each part.
///
/// User's error, naming op and reason, if the IR can't express it.
ComplexResult import_complex(ir::Builder& builder, std::string_view op, const std::vector<ComplexArgument>& arguments,
                             const ir::Type& result, bool is_complex);

/// A complex value of pairs [..., 2], the layout of torch.view_as_real, and back.
Complex from_pairs(ir::Builder& builder, Value pairs);
Value to_pairs(ir::Builder& builder, const Complex& value);

}  // namespace weft::importer
