// Attempts at programs for all sizes (pytorch/programs/generaliser.h), for weft._capture.trace.

#include "programs/generaliser.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <tuple>

#include "bindings/bindings.h"
#include "bindings/captured.h"
#include "programs/sizes.h"

namespace py = pybind11;

namespace weft::bindings {

namespace {

using programs::Rerun;
using programs::SizeAttempt;
using programs::SizeKey;
using programs::Symbols;
using record::Recording;
using record::SizeFit;
using record::Template;

/// An outer trace's symbols are pairs (their size at hand or None, name).
using Key = std::pair<std::optional<int64_t>, std::string>;
/// (sizes, dims, more dims)
using Leaf = std::tuple<std::vector<std::variant<int64_t, std::vector<Key>>>, std::vector<size_t>, std::vector<size_t>>;

/// What Python runs again.
class PythonRerun : public Rerun {
 public:
  PythonRerun(const py::function& attempt, const py::function& does_same) : attempt_(attempt), does_same_(does_same) {}

  Outcome attempt(const SizeAttempt& sizes, bool is_beyond) override {
    return attempt_(py::cast(sizes), is_beyond).cast<Outcome>();
  }
  bool does_same(const SizeAttempt& sizes) override { return does_same_(py::cast(sizes)).cast<bool>(); }

 private:
  const py::function &attempt_, &does_same_;
};

std::vector<programs::SizesAtHand::Leaf> leaves_of(const std::vector<Leaf>& given) {
  std::vector<programs::SizesAtHand::Leaf> leaves;
  for (const auto& [sizes, dims, more_dims] : given) {
    auto& leaf = leaves.emplace_back();
    leaf.dims = dims;
    leaf.more_dims = more_dims;
    for (const auto& size : sizes) {
      if (const auto* number = std::get_if<int64_t>(&size)) {
        leaf.sizes.emplace_back(*number);
        continue;
      }
      programs::SizesAtHand::Outer outer;
      for (const auto& [at_hand, name] : std::get<1>(size)) outer.push_back({at_hand, name});
      leaf.sizes.emplace_back(std::move(outer));
    }
  }
  return leaves;
}

void generalise(const std::vector<Leaf>& leaves, bool has_more_dims, bool has_run,
                const std::vector<std::tuple<size_t, size_t, int64_t>>& differing, const Widening* widening,
                programs::SampleSizes samples, programs::SizesAtHand::Follow follow, const py::function& attempt,
                const py::function& does_same) {
  programs::SizesAtHand at_hand{leaves_of(leaves), has_more_dims, has_run};
  for (const auto& [leaf, dim, before] : differing) at_hand.differing.push_back({leaf, dim, before});
  if (widening != nullptr) at_hand.attempts = widening->attempts;
  at_hand.samples = std::move(samples);
  at_hand.follow = std::move(follow);
  PythonRerun rerun(attempt, does_same);
  if (!programs::generalise(at_hand, rerun)) throw programs::Mismatch();
}

/// The template of runs that must do the same: of one run, of two, or of two and a third one at the sizes at hand.
/// `has_run`: a call has made a run of its own, whose numbers are asked for again.
std::shared_ptr<Template> template_of(const std::vector<const Recording*>& runs, SizeFit& sizes,
                                      const std::vector<size_t>& free, bool has_run) try {
  const Recording &first = *runs.at(0), &second = *runs[std::min<size_t>(1, runs.size() - 1)];
  const bool has_third = runs.size() > Symbols::kAtHand;
  auto found = std::make_shared<Template>(first.record(), second.record(),
                                          has_third ? &runs[Symbols::kAtHand]->record() : nullptr, sizes);
  if (!has_run && !found->free().empty()) throw programs::Mismatch();  // numbers in it depend on sizes
  for (size_t word : free) found->free_number(word);
  if (!found->matches(runs.back()->record())) throw programs::Mismatch();
  return found;
} catch (const Template::Mismatch&) {
  throw programs::Mismatch();
}

void define_attempts(py::module_& m) {
  py::enum_<Rerun::Outcome>(m, "Outcome", "What came of an attempt at a program.")
      .value("FAILED", Rerun::Outcome::kFailed, "It does something else at other values of the symbols.")
      .value("MADE", Rerun::Outcome::kMade)
      .value("UNWANTED", Rerun::Outcome::kUnwanted, "Symbols make the program slow.");
  py::class_<SizeAttempt>(m, "SizeAttempt", "One choice of the sizes that are symbols.")
      .def_property_readonly(
          "is_fixed", [](const SizeAttempt& attempt) { return attempt.symbols().empty(); },
          "Whether no size is a symbol.")
      .def_property_readonly(
          "runs", [](const SizeAttempt& attempt) { return attempt.symbols().runs(); },
          "The runs to make: two at other sizes, and AT_HAND.")
      .def("fit", [](const SizeAttempt& attempt) { return attempt.symbols().fit(); })
      .def("sizes", &SizeAttempt::sizes, py::arg("leaf"), py::arg("run"),
           "A tensor leaf's sizes in a run; None for those that an outer trace computes.")
      .def(
          "outer",
          [](const SizeAttempt& attempt, const Key& key, size_t run) {
            return attempt.outer({key.first, key.second}, run);
          },
          py::arg("key"), py::arg("run"), "An outer trace's symbol in a run; None if only the run time knows it.")
      .def("alike", &SizeAttempt::alike, py::arg("size"), py::arg("run"),
           "The size in a run, where it equals a leaf's size that is a symbol; else the size.")
      .attr("AT_HAND") = Symbols::kAtHand;
}

}  // namespace

void init_generaliser(py::module_& m) {
  define_attempts(m);
  m.def(
      "generalise", &generalise, py::arg("leaves"), py::arg("has_more_dims"), py::arg("has_run"), py::arg("differing"),
      py::arg("widening"), py::arg("samples"), py::arg("follow"), py::arg("attempt"), py::arg("does_same"),
      "Calls `attempt(sizes, is_beyond)` with one choice of symbols after another until one is MADE. `is_beyond`: the "
      "sizes go beyond those that are symbols by default. `does_same(sizes)` only compares runs. Raises MismatchError "
      "if all fail.");
  m.def(
      "exact_template", [](const Recording& run) { return programs::exact_template(run.record()); }, py::arg("run"),
      "The template of this run alone.");
  m.def("template_of", &template_of, py::arg("runs"), py::arg("sizes"), py::arg("free"), py::arg("has_run"),
        "The template of runs of one function. Raises MismatchError if they did different things.");
}

}  // namespace weft::bindings
