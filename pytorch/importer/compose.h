#pragma once

#include <cstdint>

#include "ir/program.h"

namespace weft::importer {

/// Verifies a program composed of others. Drops the names of its values, so that equal programs print alike.
ir::Program verified(ir::Program program);

/// Makes the program that runs a step over a sequence.
///
/// `step` is a program (carries..., x slices..., captured values...) -> (next carries..., ys...). The result is one
/// (initial carries..., xs..., captured values...) -> (last carries..., stacked ys...). Every x and y has a leading dim
/// T that it lacks in the step. A step without xs gets one more input in their place, f32[T,0], which binds T.
///
/// A step may take (carries..., x slices..., `same` values that are the same in every step..., `drawn` further x
/// slices..., captured values...): random numbers, which a trace takes behind all arguments. The result takes them
/// behind the other xs, as every x.
///
/// User's error unless every next carry has its carry's type.
ir::Program scan_program(ir::Program step, int64_t carries, int64_t xs, bool reverse, int64_t same = 0,
                         int64_t drawn = 0);

/// scan_program for a sequence of N chunks of K steps: every x and y has two leading dims, [N, K, ...]. The backward
/// keeps the carry before each chunk, and recomputes the steps of one chunk at a time. A step without xs gets an input
/// f32[N,K,0].
ir::Program checkpointed_scan_program(ir::Program step, int64_t carries, int64_t xs, bool reverse);

}  // namespace weft::importer
