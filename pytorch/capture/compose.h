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

/// The same for a sequence in chunks: every x and y has two leading dims, [N, K, ...], and its N K steps are taken one
/// after the other. The backward keeps the N carries before the chunks, and of the other steps what it computes again,
/// a chunk at a time. An input f32[N,K,0] stands in the place of xs where there are none.
std::string checkpointed_scan_program(std::string_view step, int64_t carries, int64_t xs, bool reverse);

}  // namespace weft::capture
