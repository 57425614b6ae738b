#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "programs/symbols.h"
#include "programs/widening.h"
#include "record/record.h"

namespace weft::programs {

/// Sizes of a call, some of which may be symbols in its program.
struct SizesAtHand {
  /// The keys of the symbols from which an outer trace computes a size.
  using Outer = std::vector<SizeKey>;
  using Size = std::variant<int64_t, Outer>;
  struct Leaf {
    std::vector<Size> sizes;
    std::vector<size_t> dims;       ///< that may be symbols
    std::vector<size_t> more_dims;  ///< that are better symbols where what is run does the same for all their sizes
  };
  /// A size in which a call before differed.
  struct Differing {
    size_t leaf, dim;
    int64_t before;
  };
  /// Computes the shapes of the last leaves, which follow from the shapes of the first ones. The argument has the
  /// shapes of all.
  using Follow = std::function<std::vector<std::vector<int64_t>>(const std::vector<std::vector<int64_t>>&)>;

  std::vector<Leaf> leaves;
  bool has_more_dims = false;
  bool has_run = false;  ///< there is a run at these sizes, so that expressions of symbols can be checked
  std::vector<Differing> differing = {};
  std::shared_ptr<Attempts> attempts = nullptr;  ///< at symbols for the sizes in `differing`
  SampleSizes samples = {};                      ///< for a single symbol, to try beside the usual ones
  Follow follow = nullptr;
};

/// One choice of the sizes that are symbols.
class SizeAttempt {
 public:
  SizeAttempt(SizesAtHand at_hand, Symbols symbols, bool is_by_size);

  const Symbols& symbols() const { return symbols_; }
  /// A leaf's sizes in a run; none for one that an outer trace computes.
  std::vector<std::optional<int64_t>> sizes(size_t leaf, size_t run) const;
  /// An outer trace's symbol in a run; none if only the run time knows it.
  std::optional<int64_t> outer(const SizeKey& key, size_t run) const;
  /// What a size of no leaf is in a run, if it equals a leaf's size that is a symbol.
  int64_t alike(int64_t size, size_t run) const;

  /// Computes the last leaves' sizes in both runs. Those that vary but aren't known symbols become symbols.
  void follow();

 private:
  SizesAtHand at_hand_;
  Symbols symbols_;
  bool is_by_size_;  ///< outer symbols with equal values are one symbol
  /// By leaf and dim: the symbol that the size is.
  std::vector<std::vector<std::optional<size_t>>> symbol_of_;
  /// By run: the sizes of all leaves. Empty unless the sizes of some leaves follow from those of others.
  std::vector<std::vector<std::vector<int64_t>>> followed_;
};

/// Something that can be run again at other sizes: a function of the user's, a batch of the device's.
class Rerun {
 public:
  enum class Outcome { kFailed, kMade, kUnwanted };

  virtual ~Rerun() = default;
  /// Makes the program with these symbols. kFailed: there is none that does the same at all their values. kUnwanted:
  /// there is one, but symbols make it slow. `is_beyond`: the sizes go beyond those that are symbols by default, so
  /// that an error is no error of the call.
  virtual Outcome attempt(const SizeAttempt& sizes, bool is_beyond) = 0;
  /// Whether the runs with these symbols do the same; makes no program.
  virtual bool does_same(const SizeAttempt& sizes) = 0;
};

/// Attempts at a program with symbols for sizes in which runs have differed: keys and, for each, its values in two
/// runs. Counts a failure.
Rerun::Outcome widen(const std::vector<SizeKey>& keys, const SampleSizes& seen, Attempts& attempts,
                     const std::function<Rerun::Outcome(Symbols)>& attempt);

/// Makes a program for as many sizes as possible. The order of attempts: symbols also for the sizes in which calls
/// before differed; for all dims that are better symbols, or those of them that can be; for the dims that may be, each
/// size one symbol; for all of these but one; none. False if all failed.
bool generalise(const SizesAtHand& at_hand, Rerun& rerun);

/// The template of this run alone: without symbols.
std::shared_ptr<record::Template> exact_template(const record::Record& run);

}  // namespace weft::programs
