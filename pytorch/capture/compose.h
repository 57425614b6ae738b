#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::capture {

/// The program that runs a step over a sequence.
///
/// `step` is a program (carries..., x slices..., captured values...) -> (next carries..., ys...). The result is one
/// (initial carries..., xs..., captured values...) -> (last carries..., stacked ys...), where every x and y has a
/// leading dim T more than in the step. Without xs there is an input more, in their place, which says how many steps
/// there are: f32[T,0], whose slices nobody reads.
///
/// User's error unless every next carry has its carry's type.
std::string scan_program(std::string_view step, int64_t carries, int64_t xs, bool reverse);

}  // namespace weft::capture
