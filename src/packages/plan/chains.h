#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "packages/plan/bound.h"

namespace weft::packages {

/// What a value is a slice of, or a slice of a slice: a value in memory. By dim where it begins there.
struct SliceOf {
  ir::ValueId memory;
  std::vector<int64_t> starts;
};
std::optional<SliceOf> slice_of(const Bound& step, ir::ValueId value,
                                const std::function<bool(ir::ValueId)>& in_memory);

/// A value from which one of the terms of a chain is computed, and by which the terms differ.
struct ChainLeaf {
  ir::ValueId value;                       ///< as the first term reads it
  std::vector<ir::ValueId> constants;      ///< by term; empty: a slice
  ir::ValueId sliced = ir::kNoValue;       ///< of what
  std::vector<int64_t> starts, distances;  ///< by dim: where the first term's slice begins, and from term to term
};

/// Neighbouring terms of a chain. If there are `leaves`, the terms are alike but for them: term i is what term 0 is
/// with its leaves moved i times.
struct ChainPart {
  std::vector<ir::ValueId> terms;
  std::vector<ChainLeaf> leaves;
};

/// The terms of t0 + t1 + ... or of the maximum of so many, of which at least `least` neighbours are alike: taps of a
/// filter, of which each multiplies a slice of the past by a constant of its own. Empty if `value` is no such chain, or
/// if one of its other terms is a product. `in_memory`: whether a value is stored before the chain is computed;
/// `is_shared`: whether somebody else reads it, so that it is a term and not a part of the chain.
std::vector<ChainPart> chain_of(const Bound& step, ir::ValueId value, size_t least,
                                const std::function<bool(ir::ValueId)>& in_memory,
                                const std::function<bool(ir::ValueId)>& is_shared);

}  // namespace weft::packages
