#pragma once

#include <functional>
#include <map>
#include <string>

#include "device/kernels/operators.h"

namespace weft::device {

/// Counts an operation that runs at once because later code depends on its values, with its place in the user's code.
void count_run_now(const Operator& op);

/// How often each operation has run at once, by name and then by place: "train.py:12", or "" where no user's code is at
/// work, as in a backward.
std::map<std::string, std::map<std::string, int64_t>> ran_at_once();
void forget_ran_at_once();

/// Returns the line of the user's code that is running, for messages. Called with the GIL held.
using FindPlace = std::function<std::string()>;
void set_find_place(FindPlace find_place);

}  // namespace weft::device
