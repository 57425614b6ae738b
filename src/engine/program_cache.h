#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/program.h"
#include "planning/target.h"
#include "runtime/plan/plan.h"

namespace weft::engine {

/// Compiled programs on disk, beside the objects of their modules (jit/object_cache.h, which says who may read and
/// write them). A program found here needs no pass, no planning and no code generation, which take longer than all else
/// once an object is known.
///
/// The key is the program's text with everything that the way from there to machine code reads: the binary that this
/// code is in, by its build ID; LLVM and its options; the target; the settings. With WEFT_VERIFY=1 every program is
/// compiled, and what its key leads to is compared with that (check_stored).
struct StoredProgram {
  runtime::Plan plan;
  std::vector<std::string> objects;
};

/// The key of a program; empty where it is not to be kept: without a cache or a build ID, and when its passes are to be
/// seen (WEFT_DUMP, WEFT_TIME).
std::string program_key(const ir::Program& program, const planning::Target& target);

/// The program of a key, if it is there. A damaged file is ignored.
std::optional<StoredProgram> load_program(const std::string& key);
void store_program(const std::string& key, const runtime::Plan& plan, const std::vector<std::string>& objects);

/// Internal error if the key leads to a plan that isn't this one: then something that plans depend on isn't in the key.
void check_stored(const std::string& key, const runtime::Plan& plan);

}  // namespace weft::engine
