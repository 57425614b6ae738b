#pragma once

#include "verify/compare.h"
#include "verify/diagnosis/changes.h"
#include "verify/diagnosis/diagnose.h"

namespace weft::verify {

/// The search for the known changes of one scope that explain a problem.
class Search {
 public:
  /// comparison: of the problem, which outlives the search.
  Search(const Problem& problem, const Scope& scope, const Comparison& comparison, const Poll& poll);

  /// Tries all sets of one, two or three changes, the likeliest first, until it has done so much work.
  ///
  /// Returns: the best of all sets found so far, or none; of the sets of `count` those that weren't tried. The work
  /// that was done is subtracted from `allowed`, which may end a little below 0.
  Diagnosis sets_of(int count, double& allowed);

 private:
  struct Found {
    Changes changes;
    double worst;  // against the bound of the recording's own precision
  };

  void try_singles();
  void try_pairs(InPairs rarest);
  void try_triples();

  bool says_more_than(double bits) const;
  double work_of(const Change& change) const;
  std::vector<const Change*> usual_changes() const;
  void explain_by_three(const Change& first, const Change& second, const Change& last);
  bool may_try(double more, const Change& change);
  bool compare_quickly(const Problem& changed);
  bool makes_smaller(const Problem& changed, const Comparison& comparison) const;
  bool explains(const std::vector<const Change*>& changes);
  Diagnosis best() const;

  const Problem& problem_;
  const Scope scope_;
  const Poll& poll_;
  const std::vector<Change> known_;
  const double overhead_;
  bool is_known_ = true;  // every h is recorded, so that every step stands by itself
  Sample sample_;         // the units around the number that differs first
  ProductCache cache_;
  LayerCache below_;
  std::vector<Found> found_;
  double defect_ = 0, evidence_ = 0;
  double allowed_ = 0;
  Untried untried_;
};

}  // namespace weft::verify
