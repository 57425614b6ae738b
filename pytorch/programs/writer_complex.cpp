// Operations of complex numbers, which the program has in parts.

#include <ATen/ops/equal.h>

#include <algorithm>

#include "base/error.h"
#include "programs/writer.h"

namespace weft::programs {

using c10::IValue;
using importer::Value;
using record::Operation;

/// Whether an argument or a result is complex.
bool Writer::has_complex(const Operation& operation) {
  const auto is_one = [&](int64_t id) { return is_complex(id); };
  return std::ranges::any_of(operation.results, [&](int64_t id) { return id >= 0 && is_complex(id); }) ||
         std::ranges::any_of(MatchedRuns::ids(one(), arguments_of(one(), operation)), is_one);
}

/// Writes an operation of complex numbers, part by part.
void Writer::complex(const Operation& a, const Operation& b) {
  const std::string name = name_of(a) == "weft.stop_gradient.default" ? "weft.stop_gradient" : name_of(a);
  if (a.results.size() != 1 || !importer::knows_complex(name))
    throw record::UnsupportedError(name + " of complex numbers");
  std::vector<importer::ComplexArgument> arguments;
  const auto given = arguments_of(one(), a), others = arguments_of(two(), b);
  for (size_t i = 0; i < given.size(); ++i)
    arguments.push_back(complex_argument(given[i], others[i], a.op->schema().arguments()[i]));
  const int64_t id = a.results[0];
  const ir::Type result = is_complex(id) ? part_type(id) : type(id);
  const auto found = region_.build([&](ir::Builder& builder) {
    try {
      return importer::import_complex(builder, name, arguments, result, is_complex(id));
    } catch (const Error& error) {
      throw record::UnsupportedError(error.what());
    }
  });
  const auto stopped = [&](Value value) {
    if (a.grad_mode || !is_floating(result.dtype)) return value;
    return region_.aten("weft.stop_gradient", {value}, result);
  };
  if (const auto* real = std::get_if<Value>(&found)) {
    values_[id] = stopped(*real);
  } else {
    const auto& [re, im] = std::get<importer::Complex>(found);
    parts_[id] = {stopped(re), im ? std::optional(stopped(*im)) : std::nullopt};
  }
}

importer::ComplexArgument Writer::complex_argument(const IValue& a, const IValue& b, const c10::Argument& parameter) {
  if (a.tagKind() != b.tagKind()) throw Mismatch();
  if (a.isComplexDouble()) {
    if (a.toComplexDouble() != b.toComplexDouble()) throw Mismatch();
    return std::complex<double>(a.toComplexDouble());
  }
  if (a.isTensor() && a.toTensor().defined() && a.toTensor().is_complex()) {
    const auto id = one().id(a.toTensor());
    if (!b.toTensor().defined() || id != two().id(b.toTensor())) throw Mismatch();
    if (id) return parts_.at(*id);
    if (!at::equal(a.toTensor(), b.toTensor())) throw Mismatch();
    return std::complex<double>(*a.toTensor().const_data_ptr<c10::complex<double>>());
  }
  if (a.isTensorList()) {
    const auto tensors = a.toTensorVector();
    std::vector<importer::Complex> values;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined() || !tensors[i].is_complex()) break;
      const auto one_of = complex_argument(tensors[i], b.toTensorVector().at(i), parameter);
      values.push_back(std::get<importer::Complex>(one_of));
    }
    if (!tensors.empty() && values.size() == tensors.size()) return values;
  }
  return argument(a, b, parameter);
}

}  // namespace weft::programs
