#pragma once

#include <string>

#include "planning/schedule.h"

namespace weft::planning {

/// The lowered program as text. A comment behind each op says how it is lowered:
///
///     %g = matmul_packed %h, %p {groups = 3, ...} : f32[B,48]  // stage 0
///     %hT = scan length T carry(%h = %h0) xs() {  // stage 1, a loop: gather in a scan
std::string write_lowered(const Schedule& schedule);

}  // namespace weft::planning
