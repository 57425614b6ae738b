#pragma once

#include <functional>
#include <vector>

#include "verify/changes.h"
#include "verify/compare.h"

namespace weft::verify {

using Poll = std::function<void()>;

/// Changes that make the layers agree with the recording, in the order in which they are made.
using Changes = std::vector<Change>;

/// The reason why the layers of a scope differ.
struct Diagnosis {
  Scope scope;
  Changes changes;            // the smallest set, by preference; empty: no known difference explains it
  std::vector<Changes> also;  // other sets of changes, no larger, that explain it as well
};

/// Tries the known differences one at a time, then in pairs, then three at once, and says which make the layers agree
/// with the recording. Where all layers were recorded each is searched by itself; otherwise a change is made in all
/// layers, then in each.
///
/// Args:
///   most: how many are tried at once; one at a time takes a small part of the time.
///   poll: called now and then; what it throws ends the search.
///
/// Returns: nothing where they agree; else one diagnosis for each part that differs.
std::vector<Diagnosis> diagnose(
    const std::vector<Layer>& layers, const Recording& recording, int most = 3, const Poll& poll = [] {});

}  // namespace weft::verify
