#include "programs/writer.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <set>

#include "operator/signature.h"
#include "passes/differentiation/gradient_paths.h"
#include "passes/differentiation/own_derivatives.h"
#include "passes/rewrite.h"
#include "passes/simplification/dce.h"
#include "programs/extern_text.h"

namespace weft::programs {

using c10::IValue;
using importer::Argument;
using importer::Value;
using record::Operation;
using record::Recording;

RunsProgram Writer::write() {
  add_inputs();
  write_operations();
  std::vector<Value> outputs;
  for (int64_t id : one().outputs()) outputs.push_back(output(id));
  add_sizes();
  program_.program = region_.finish(outputs);
  // A part that nobody reads is no path to its input.
  if (!parts_.empty() && unread_ == Unread::kLeftOut) passes::dce(program_.program);
  keep_paths();
  return std::move(program_);
}

void Writer::add_inputs() {
  for (int64_t i = 0; i < runs_.first().inputs(); ++i) {
    auto dims = runs_.sizes(i);
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      if (dims[dim].is_symbol()) binders_.try_emplace(dims[dim].name(), static_cast<size_t>(i), dim);
    }
    add_input(i);
  }
  for (auto [a, b] : runs_.kept()) {
    if (is_draw(name_of(*a))) add_noise(*a, *b);
  }
  for (int64_t i = 0; i < runs_.first().captured(); ++i) add_input(runs_.first().inputs() + i);
  add_constants();
}

void Writer::write_operations() {
  for (auto [a, b] : unread_ == Unread::kKept ? runs_.all() : runs_.kept()) {
    if (is_draw(name_of(*a))) continue;
    if (!runs_.is_kept(*a)) {
      write_unread(*a, *b);
      continue;
    }
    const auto at = static_cast<size_t>(a - one().operations().data());
    runs_.blame(at);
    const size_t first_op = region_.ops();
    try {
      write(*a, *b);
      if (is_noted_)
        region_.note(first_op, passes::kSourceOperation, static_cast<int64_t>(runs_.first().source_of(at)));
    } catch (record::UnsupportedError& error) {
      if (error.operation == record::UnsupportedError::kNoOperation) error.operation = runs_.first().source_of(at);
      throw;
    }
  }
  runs_.blame_none();
}

/// Writes an operation that nothing depends on, unless it can't be written or reads one that couldn't.
void Writer::write_unread(const Operation& a, const Operation& b) {
  const auto is_known = [&](int64_t id) { return values_.contains(id) || parts_.contains(id); };
  if (!std::ranges::all_of(MatchedRuns::ids(one(), arguments_of(one(), a)), is_known)) return;
  try {
    write(a, b);
  } catch (const record::UnsupportedError&) {
  } catch (const Mismatch&) {
  } catch (const Error&) {
  }
}

void Writer::add_sizes() {
  for (int64_t i = 0; i < one().inputs(); ++i) {
    auto& found = program_.sizes.emplace_back();
    for (const ir::Dim& size : runs_.sizes(i)) {
      if (size.is_constant()) {
        found.emplace_back(size.constant());
      } else {
        found.emplace_back(to_string(renamed(size)));
      }
    }
  }
  for (const at::Tensor& constant : program_.constants)
    program_.sizes.emplace_back(constant.sizes().begin(), constant.sizes().end());
}

/// Autograd may see a path to an input where the program has none: `torch.copysign(x, y)` has a gradient of zeros by y.
/// Such an input gets a reader that nobody reads, and so counts as reached (passes/differentiation/gradient_paths.h).
void Writer::keep_paths() {
  const Recording& source = runs_.first().source();
  ir::Program& program = program_.program;
  const std::vector<bool> known =
      passes::GradientPaths(program).reached(std::vector<bool>(program.body.results.size(), true));
  for (int64_t end : source.graph().reached_ends(source.output_uses())) {
    const auto value = values_.find(end < 0 ? runs_.first().inputs() - 1 - end : end);
    if (value == values_.end()) continue;
    const ir::ValueId input = value->second.id;
    const auto place = std::ranges::find(program.body.args, input);
    if (place == program.body.args.end() || known[static_cast<size_t>(place - program.body.args.begin())]) continue;
    passes::add_path(program, input);
  }
}

// ---- types and inputs

/// The size in the program's symbols.
ir::Dim Writer::renamed(const ir::Dim& size) {
  std::set<std::string> used;
  size.add_symbols(used);
  for (const std::string& symbol : used)
    names_.try_emplace(symbol, ir::Dim::symbol("N" + std::to_string(names_.size())));
  return substitute(size, names_);
}

ir::Type Writer::type(int64_t id) { return type_of(id, runs_.dtype(id)); }

/// The type of each part of a complex value.
ir::Type Writer::part_type(int64_t id) { return type_of(id, c10::toRealValueType(runs_.dtype(id))); }

ir::Type Writer::type_of(int64_t id, at::ScalarType scalar_type) {
  auto dtype = torch_operator::dtype_of(scalar_type);
  if (!dtype) throw record::UnsupportedError(std::string("a tensor of ") + python_name(scalar_type));
  ir::Type type{*dtype, {}};
  for (const ir::Dim& size : runs_.sizes(id)) type.shape.push_back(renamed(size));
  return type;
}

void Writer::add_input(int64_t id) {
  if (!is_complex(id) || complex_ends_ == ComplexEnds::kRefused) {
    values_[id] = region_.input(type(id));
    return;
  }
  ir::Type pairs = part_type(id);
  pairs.shape.emplace_back(2);
  values_[id] = region_.input(pairs);
  parts_[id] = region_.build([&](ir::Builder& builder) { return importer::from_pairs(builder, values_[id]); });
}

/// The value with this id, which must be real.
Value Writer::value(int64_t id) const {
  if (parts_.contains(id)) throw record::UnsupportedError("an operation of complex numbers that programs lack");
  return values_.at(id);
}

Value Writer::output(int64_t id) {
  const auto found = parts_.find(id);
  if (found == parts_.end()) return values_.at(id);
  if (complex_ends_ == ComplexEnds::kRefused) type(id);  // throws
  return region_.build([&](ir::Builder& builder) { return importer::to_pairs(builder, found->second); });
}

void Writer::add_noise(const Operation& a, const Operation& b) {
  Draw draw = make_draw(name_of(a), arguments_of(one(), a)), other = make_draw(name_of(b), arguments_of(two(), b));
  for (size_t i = 0; i < draw.arguments.size(); ++i) {
    if (!draw.arguments[i].toScalar().equal(other.arguments[i].toScalar().toDouble())) throw Mismatch();
  }
  int64_t id = a.results[0];
  if (is_complex(id)) throw record::UnsupportedError("random complex numbers");
  Noise noise{std::move(draw), one().metas().at(static_cast<size_t>(id)).dtype, {}};
  for (const ir::Dim& size : runs_.sizes(id)) {
    // The size must be a product of inputs' sizes.
    if (size.terms().size() + (size.number() != 0 ? 1 : 0) > 1) throw Mismatch();
    auto& [factor, dims] = noise.sizes.emplace_back(size.number(), std::vector<std::pair<size_t, size_t>>());
    for (const ir::Dim::Term& term : size.terms()) {
      factor = term.factor;
      for (const ir::Dim::Atom& atom : term.atoms) {
        if (!binders_.contains(atom.symbol)) throw Mismatch();
        dims.push_back(binders_.at(atom.symbol));
      }
    }
  }
  add_input(id);
  program_.noise.push_back(std::move(noise));
}

/// Adds the constants: tensors that were made of Python numbers, not by a recorded operation.
void Writer::add_constants() {
  if (one().outside().size() != two().outside().size()) throw Mismatch();
  for (size_t i = 0; i < one().outside().size(); ++i) {
    const at::Tensor& a = one().outside()[i];
    const at::Tensor& b = two().outside()[i];
    if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || !at::equal(a, b)) throw Mismatch();
    const at::Tensor constant = a.detach().resolve_conj().clone();
    program_.constants.push_back(constant.is_complex() ? at::view_as_real(constant) : constant);
    add_input(-1 - static_cast<int64_t>(i));
  }
}

}  // namespace weft::programs
