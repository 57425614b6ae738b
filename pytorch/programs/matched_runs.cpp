#include "programs/matched_runs.h"

#include <algorithm>
#include <set>

#include "programs/draws.h"

namespace weft::programs {

using c10::IValue;

at::ArrayRef<IValue> arguments_of(const record::Recording& run, const record::Operation& operation) {
  size_t count = operation.op ? operation.op->schema().arguments().size() : 2;
  return at::ArrayRef<IValue>(run.arguments().data() + operation.arguments, count);
}

std::string name_of(const record::Operation& operation) {
  return operation.op ? printed_name(operation.op->operator_name()) : "";
}

MatchedRuns::MatchedRuns(const std::vector<std::unique_ptr<ImportedRun>>& runs, record::SizeFit& fit)
    : first_(*runs[0]),
      second_(*runs[std::min<size_t>(1, runs.size() - 1)]),
      third_(runs.size() > 2 ? runs[2].get() : nullptr),
      fit_(fit) {}

void MatchedRuns::match() {
  const size_t count = std::max(one().operations().size(), two().operations().size());
  for (size_t i = 0; i < count; ++i) {
    blame(i);
    if (!is_same(i)) throw Mismatch();
  }
  blame_none();
  if (one().outputs() != two().outputs()) throw Mismatch();
  keep_what_is_read();
  if (third_ != nullptr) bear_out(third_->flat());
}

bool MatchedRuns::is_same(size_t operation) {
  if (operation >= std::min(one().operations().size(), two().operations().size())) return false;
  const Operation &a = one().operations()[operation], &b = two().operations()[operation];
  return name_of(a) == name_of(b) && a.results == b.results && a.grad_mode == b.grad_mode && a.vjp == b.vjp;
}

void MatchedRuns::keep_what_is_read() {
  const auto& a = one().operations();
  const auto& b = two().operations();
  std::set<int64_t> needed(one().outputs().begin(), one().outputs().end());
  for (size_t i = a.size(); i-- > 0;) {
    bool is_read = std::ranges::any_of(a[i].results, [&](int64_t id) { return needed.contains(id); });
    if (is_draw(name_of(a[i]))) {
      kept_.emplace_back(&a[i], &b[i]);
    } else if (is_read) {
      kept_.emplace_back(&a[i], &b[i]);
      auto read = ids(one(), arguments_of(one(), a[i]));
      blame(i);
      if (read != ids(two(), arguments_of(two(), b[i]))) throw Mismatch();
      needed.insert(read.begin(), read.end());
    }
  }
  blame_none();
  std::ranges::reverse(kept_);
}

std::vector<MatchedRuns::Pair> MatchedRuns::all() const {
  const auto &a = first_.flat().operations(), &b = second_.flat().operations();
  std::vector<Pair> pairs;
  for (size_t i = 0; i < a.size(); ++i) pairs.emplace_back(&a[i], &b[i]);
  return pairs;
}

bool MatchedRuns::is_kept(const Operation& operation) const {  // kept_ is in the order of the operations
  return std::ranges::binary_search(kept_, &operation, std::less(), &Pair::first);
}

/// Throws unless the shapes of the run at the call's own sizes follow from the other two runs.
void MatchedRuns::bear_out(Recording& real) {
  const size_t count = one().operations().size();
  for (size_t i = 0; i < count; ++i) {
    blame(i);
    if (i >= real.operations().size() || name_of(real.operations()[i]) != name_of(one().operations()[i]) ||
        real.operations()[i].results != one().operations()[i].results)
      throw Mismatch();
    for (int64_t id : one().operations()[i].results) {
      if (id < 0) continue;
      auto expected = sizes(id);
      const auto& found = real.metas()[static_cast<size_t>(id)].sizes;
      if (expected.size() != found.size()) throw Mismatch();
      for (size_t dim = 0; dim < found.size(); ++dim) {
        if (fit_.at_hand(expected[dim]) != found[dim]) throw Mismatch();
      }
    }
  }
  blame(count);
  if (real.operations().size() != count) throw Mismatch();
  blame_none();
}

ir::Shape MatchedRuns::sizes(int64_t id) {
  if (id < 0) {
    const auto found = one().outside()[static_cast<size_t>(-1 - id)].sizes();
    return {found.begin(), found.end()};
  }
  const Recording::Meta& a = one().metas().at(static_cast<size_t>(id));
  const Recording::Meta& b = two().metas().at(static_cast<size_t>(id));
  if (a.dtype != b.dtype) throw Mismatch();
  return sizes_of(fit_, a.sizes, b.sizes);
}

at::ScalarType MatchedRuns::dtype(int64_t id) {
  return id < 0 ? one().outside()[static_cast<size_t>(-1 - id)].scalar_type()
                : one().metas().at(static_cast<size_t>(id)).dtype;
}

namespace {

/// Appends the tensors in an argument.
void collect(const IValue& argument, std::vector<at::Tensor>& tensors) {
  if (argument.isTensor()) {
    if (argument.toTensor().defined()) tensors.push_back(argument.toTensor());
  } else if (argument.isTensorList()) {
    for (const at::Tensor& tensor : argument.toTensorVector()) collect(tensor, tensors);
  } else if (argument.isList() && !argument.isIntList() && !argument.isDoubleList() && !argument.isBoolList()) {
    for (const IValue& item : argument.toListRef()) collect(item, tensors);
  }
}

}  // namespace

std::vector<int64_t> MatchedRuns::ids(Recording& run, at::ArrayRef<IValue> arguments) {
  std::vector<at::Tensor> tensors;
  for (const IValue& argument : arguments) collect(argument, tensors);
  std::vector<int64_t> found;
  for (const at::Tensor& tensor : tensors) {
    if (auto id = run.id(tensor)) found.push_back(*id);
  }
  return found;
}

void MatchedRuns::blame(size_t operation) {
  blamed_ = first_.decomposed_at(operation);
  if (blamed_.empty()) blamed_ = second_.decomposed_at(operation);
}

}  // namespace weft::programs
