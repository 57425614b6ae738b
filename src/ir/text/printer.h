#pragma once

#include <functional>
#include <string>

#include "ir/program.h"

namespace weft::ir {

/// The program as text, losslessly: parse(print(p)) prints the same. Values without a name get numbers, names that
/// would clash get a suffix; two programs that differ only in value names print alike with `canonical` (names are all
/// numbers).
///
///     program @gru(%x: f32[T,B,8], %h0: f32[B,16], %w: f32[48,16]) {
///       %g = matmul %h0, %w {transpose_b = true} : f32[B,48]
///       %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {      // `scan reverse length T` runs backwards
///         %a = add %h, %xt : f32[B,16]
///         yield carry(%a) ys(%a)
///       } : f32[B,16], f32[T,B,16]
///       return %ys, %hT
///     }
std::string print(const Program& program, bool canonical = false);

/// The program's text, with note(op), unless it is empty, as a comment after the op, or after its first line if it has
/// regions.
std::string print(const Program& program, const std::function<std::string(const Op&)>& note);

}  // namespace weft::ir
