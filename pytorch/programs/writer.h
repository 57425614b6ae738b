#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "importer/complex.h"
#include "importer/region.h"
#include "ir/inline.h"
#include "programs/matched_runs.h"
#include "programs/program_of_runs.h"

namespace weft::programs {

/// Writes the program of matched runs, operation by operation.
class Writer {
 public:
  Writer(MatchedRuns& runs, const ExternDerivative& derivative, bool is_noted, ComplexEnds complex_ends, Unread unread)
      : runs_(runs), derivative_(derivative), is_noted_(is_noted), complex_ends_(complex_ends), unread_(unread) {}

  RunsProgram write();

 private:
  using Operation = record::Operation;
  using Recording = record::Recording;
  using Value = importer::Value;
  using Argument = importer::Argument;

  Recording& one() { return runs_.one(); }
  Recording& two() { return runs_.two(); }
  void add_inputs();
  void write_operations();
  void write_unread(const Operation& a, const Operation& b);
  ir::Dim renamed(const ir::Dim& size);
  ir::Type type(int64_t id);
  ir::Type part_type(int64_t id);
  ir::Type type_of(int64_t id, at::ScalarType scalar_type);
  bool is_complex(int64_t id) { return at::isComplexType(runs_.dtype(id)); }
  Value value(int64_t id) const;
  Value output(int64_t id);
  void add_input(int64_t id);
  void add_noise(const Operation& a, const Operation& b);
  void add_constants();
  void add_sizes();
  void keep_paths();
  void write(const Operation& a, const Operation& b);
  std::vector<Value> aten(const Operation& a, const Operation& b);
  bool has_complex(const Operation& operation);
  void complex(const Operation& a, const Operation& b);
  importer::ComplexArgument complex_argument(const c10::IValue& a, const c10::IValue& b,
                                             const c10::Argument& parameter);
  std::vector<Value> external(const Operation& a, const Operation& b);
  bool is_checked(const Operation& operation);
  Argument argument(const c10::IValue& a, const c10::IValue& b, const c10::Argument& parameter);
  Argument tensor(const at::Tensor& a, const at::Tensor& b);
  Argument list(const c10::IValue& a, const c10::IValue& b, const c10::Argument& parameter);
  Argument integer(int64_t a, int64_t b);
  ExternOperation::Tensor described(int64_t id);

  MatchedRuns& runs_;
  const ExternDerivative& derivative_;
  bool is_noted_;
  ComplexEnds complex_ends_;
  Unread unread_;
  importer::Region region_;
  RunsProgram program_;
  std::map<int64_t, Value> values_;             ///< real ones; complex inputs too, as pairs
  std::map<int64_t, importer::Complex> parts_;  ///< complex ones
  ir::SymbolSizes names_;                       ///< by symbol, in order of appearance: so equal programs print alike
  std::map<std::string, std::pair<size_t, size_t>> binders_;  ///< by symbol: the input and dim that has it
};

}  // namespace weft::programs
