#pragma once

#include <functional>
#include <vector>

#include "verify/changes.h"
#include "verify/compare.h"

namespace weft::verify {

/// Changes that make the layers agree with the recording: one, or two in the order in which they are made.
using Changes = std::vector<Change>;

/// Why the layers of a scope differ.
struct Diagnosis {
  Scope scope;
  Changes changes;            // the smallest set, by preference; empty: no known difference explains it
  std::vector<Changes> also;  // others as small that explain it as well
};

/// Tries the known differences one at a time, then in pairs, and says which make the layers agree with the recording.
/// Where all layers were recorded each is searched by itself; otherwise a change is made in all layers, then in each.
///
/// Args:
///   with_pairs: false: one at a time only, which takes a small part of the time.
///   poll: called now and then; what it throws ends the search.
///
/// Returns: nothing where they agree; else one diagnosis for each part that differs.
std::vector<Diagnosis> diagnose(
    const std::vector<Layer>& layers, const Recording& recording, bool with_pairs = true,
    const std::function<void()>& poll = [] {});

}  // namespace weft::verify
