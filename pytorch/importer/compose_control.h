#pragma once

#include <cstdint>

#include "ir/program.h"

namespace weft::importer {

/// Makes the program that runs a body as long as a condition holds.
///
/// `condition` is a program (carries..., captured values...) -> bool[], `body` one (carries..., captured values...) ->
/// (next carries...). The result is one (initial carries..., the condition's captured values..., the body's...) ->
/// (last carries...). It has no gradients. User's error unless the carries have the same types in all of them.
ir::Program while_program(ir::Program condition, ir::Program body, int64_t carries, int64_t captured_by_condition,
                          int64_t captured_by_body);

/// The same in at most T steps, where an input f32[T,0] after the initial carries binds T. The program is a scan of T
/// conds, so it has gradients. Once the condition is false, the remaining steps change nothing.
ir::Program bounded_while_program(ir::Program condition, ir::Program body, int64_t carries,
                                  int64_t captured_by_condition, int64_t captured_by_body);

/// Makes the program that runs one of two programs: (bool[], operands..., values that `yes` captures..., values that
/// `no` captures...) -> (results...). `yes` and `no` are programs (operands..., captured values...) -> (results...)
/// with the same types of results; `yes` runs if the predicate is true.
ir::Program cond_program(ir::Program yes, ir::Program no, int64_t operands, int64_t captured_by_yes,
                         int64_t captured_by_no);

}  // namespace weft::importer
