#pragma once

#include <functional>
#include <map>
#include <string>

#include "device/operators.h"

namespace weft::device {

/// Counts an operation that runs at once, since what comes next depends on its values, with the place in the user's
/// code.
void count_run_now(const Operator& op);

/// How often each operation has run at once, by its name and the place: "train.py:12", or "" where no code of the
/// user's is at work, as in a backward.
std::map<std::string, std::map<std::string, int64_t>> ran_at_once();
void forget_ran_at_once();

/// How to find the place: called with the GIL.
using FindPlace = std::function<std::string()>;
void set_find_place(FindPlace find_place);

}  // namespace weft::device
