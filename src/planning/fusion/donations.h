#pragma once

#include <optional>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// Finds the results that may not be written where they are computed, because a stage would read a new value for an old
/// one. These are results that take an input's memory (ir::Donation) while stages behind the write still read the
/// input. Returns their positions. fuse copies them to the inputs' memory in stages behind all others.
///
/// A result stays where it is computed if every stage that reads the input comes before its stage. It stays, too, if
/// its own stage reads the input, but only at the element at hand, and for the first time at or before the op that
/// stores the result: the code of a stage loads an element once and keeps it in a register.
///
///     %p2 = sub %p, %u : f32[64,64]                     // stage 1
///     return %p2 in %p                                  // in place: each element is read, then written
///
///     %p2 = sub %p, %u : f32[64,64]                     // stage 1
///     %n = reduce_max %p {dims = [1]} : f32[64]         // stage 2 reads %p
///     %c = copy %p2 : f32[64,64]                        // stage 3
///     return %c in %p, %n
std::vector<size_t> written_too_early(const LoweringRules& rules, const std::vector<Stage>& body);

/// Whether the op, or one in its regions, may find an error when it runs (ir::fails).
bool may_fail(const ir::Program& program, const ir::Op& op);

/// Protects donated inputs from ops that may fail. Results that take an input's memory are written only after such ops,
/// so that a call that fails leaves the inputs unchanged.
struct LateWrites {
  /// By op of the body: whether it is deferred, that is, runs after all stages that may fail. Deferred are the ops that
  /// write such results, and their readers.
  std::vector<bool> deferred;
  /// The first deferred op, if it may fail but finds all its errors before it writes. It runs after all other ops that
  /// may fail and before all that write. A later op that makes the same checks cannot fail:
  ///
  ///     %k2 = dynamic_update %k, %a, %at {dim = 0} : f32[512,64]   // finds that %at is too large, or nothing
  ///     %v2 = dynamic_update %v, %b, %at {dim = 0} : f32[512,64]
  ///     return %k2 in %k, %v2 in %v
  std::optional<size_t> gate;
  /// Results that are operands or results of ops that may fail. They are computed aside and copied at the end.
  std::vector<size_t> copied;
};
LateWrites late_writes(const LoweringRules& rules);

/// Whether the result at this position is the same value as the input whose memory it takes: then nothing is written.
bool is_kept(const ir::Program& program, size_t result);

}  // namespace weft::planning
