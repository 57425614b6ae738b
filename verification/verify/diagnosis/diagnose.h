#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "verify/compare.h"
#include "verify/diagnosis/changes.h"

namespace weft::verify {

using Poll = std::function<void()>;

/// The work of a second, in multiply-adds: what a processor of the year 2020 does at least.
constexpr double kWorkOfSecond = 1e9;

/// Changes that make the layers agree with the recording, in the order in which they are made.
using Changes = std::vector<Change>;

/// The sets of known changes that a search left out.
struct Untried {
  int count = 0;                     // changes of a set
  int64_t left = 0, all = 0;         // sets left out, of so many
  std::vector<std::string> names{};  // of changes: each set left out has one of them
};

/// The reason why the layers of a scope differ.
struct Diagnosis {
  Scope scope;
  Changes changes;                 // the smallest set, by preference; empty: no known difference explains it
  std::vector<Changes> also;       // others of as few changes that explain it as well
  std::vector<Untried> untried{};  // what the budget left out, by count
};

/// Tries the known differences one at a time, then in pairs, then three at once, and says which make the layers agree
/// with the recording. Where all layers were recorded each is searched by itself; otherwise a change is made in all
/// layers, then in each.
///
/// Args:
///   budget: the work that may be done, in seconds of a processor: see `kWorkOfSecond`. What was done is subtracted,
///   also
///     where it was a little more. It is work that is counted, not time, so that answers don't depend on the machine.
///   most: how many are tried at once; one at a time takes a small part of the time.
///   poll: called now and then; what it throws ends the search.
///
/// Returns: nothing where they agree; else one diagnosis for each part that differs.
std::vector<Diagnosis> diagnose(
    const std::vector<Layer>& layers, const Recording& recording, double& budget, int most = 3,
    const Poll& poll = [] {});

}  // namespace weft::verify
