#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "programs/imported_run.h"
#include "programs/sizes.h"

namespace weft::programs {

at::ArrayRef<c10::IValue> arguments_of(const record::Recording& run, const record::Operation& operation);
/// The operator's name as PyTorch prints it; empty for a recorded derivative.
std::string name_of(const record::Operation& operation);

/// Runs of one function at other sizes, operation by operation. Throws Mismatch if they did different things.
class MatchedRuns {
 public:
  using Operation = record::Operation;
  using Recording = record::Recording;

  /// `runs`: as program_of_runs() takes them.
  MatchedRuns(const std::vector<std::unique_ptr<ImportedRun>>& runs, record::SizeFit& fit);

  /// Pairs the operations of the first two runs. A third run must bear out what these say of sizes.
  void match();

  ImportedRun& first() { return first_; }
  Recording& one() { return first_.flat(); }
  Recording& two() { return second_.flat(); }
  record::SizeFit& fit() { return fit_; }
  using Pair = std::pair<const Operation*, const Operation*>;
  /// The operations whose results are read, and all draws, in the order in which a plain loop makes them.
  const std::vector<Pair>& kept() const { return kept_; }
  /// All operations, in the same order.
  std::vector<Pair> all() const;
  bool is_kept(const Operation& operation) const;

  /// The sizes of a value; those of constants are numbers.
  ir::Shape sizes(int64_t id);
  at::ScalarType dtype(int64_t id);
  /// The tensors in arguments that are values of the run.
  static std::vector<int64_t> ids(Recording& run, at::ArrayRef<c10::IValue> arguments);

  /// Errors from here on belong to this operation.
  void blame(size_t operation);
  void blame_none() { blamed_.clear(); }
  /// After an error: the name of the decomposed operation that threw it, else empty.
  const std::string& blamed() const { return blamed_; }

 private:
  bool is_same(size_t operation);
  void keep_what_is_read();
  void bear_out(Recording& real);

  ImportedRun& first_;
  ImportedRun& second_;
  ImportedRun* third_;
  record::SizeFit& fit_;
  std::string blamed_;
  std::vector<Pair> kept_;
};

}  // namespace weft::programs
