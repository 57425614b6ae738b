// The table of contents: every pass, and the order in which a program is compiled.
#include <array>

#include "passes/differentiation/drop_derivatives.h"
#include "passes/differentiation/vjp.h"
#include "passes/layout/fuse.h"
#include "passes/layout/prepack.h"
#include "passes/layout/promote_sums.h"
#include "passes/loops/hoist.h"
#include "passes/loops/merge_stacks.h"
#include "passes/loops/sink.h"
#include "passes/pass_runner.h"
#include "passes/rolling/roll.h"
#include "passes/simplification/canonicalise.h"
#include "passes/simplification/cse.h"
#include "passes/simplification/dce.h"
#include "passes/simplification/push_slices.h"
#include "passes/simplification/reassociate.h"

namespace weft::passes {
namespace {

/// The pass `vjp`: the program of the cotangents of all floating inputs.
void differentiate(ir::Program& program) {
  std::vector<bool> wanted;
  for (ir::ValueId input : program.body.args) wanted.push_back(is_floating(program.type(input).dtype));
  program = vjp_of_primals(program, wanted);
}

constexpr Pass kPasses[] = {
    {"canonicalise", canonicalise},
    {"cse", cse},
    {"dce", dce},
    {"vjp", differentiate},
    {"promote_sums", promote_sums},
    {"reassociate", reassociate},
    {"hoist", hoist},
    {"push_slices", push_slices},
    {"sink", sink},
    {"merge_stacks", merge_stacks},
    {"prepack", prepack},
    {"fuse", fuse},
    {"drop_derivatives", drop_derivatives},
    {"roll", roll},
};

constexpr std::string_view kPipeline[] = {
    // Nothing is differentiated from here on.
    "drop_derivatives",
    // f16 and bf16 products in f32, with casts that the passes below see.
    "promote_sums",
    // One form for what means the same, so that the passes below see slices and broadcasts where work is least.
    "canonicalise",
    "cse",
    "dce",
    // Sets apart what depends on no carry in sums and products, for hoist.
    "reassociate",
    // Out of the loop, to its front: what no carry is needed for. Before sink, so that sink stacks only what the loop
    // makes.
    "hoist",
    // Gates as slices of the loop's own products; what hoist has taken out stays whole.
    "push_slices",
    // Merges what hoist has put side by side outside (a bias added to a projection, broadcasts of broadcasts).
    "canonicalise",
    // The slices of captured values that push_slices has made.
    "hoist",
    // Out of the loop, to its back: what no carry needs.
    "sink",
    "canonicalise",
    "cse",
    "dce",
    // What two of the stacks that sink has made have in common, once. It undoes canonical forms, so it comes after
    // them.
    "merge_stacks",
    // From here on the program is as it runs: weights in panels, which no pass above looks into, and
    "prepack",
    // without the casts of what is packed as it is, and
    "dce",
    // ops in stages, the loop nests of machine code.
    "fuse",
};

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }

const Pass& find_pass(std::string_view name) {
  for (const Pass& pass : kPasses)
    if (pass.name == name) return pass;
  std::string known;
  for (const Pass& pass : kPasses) known += (known.empty() ? "" : ", ") + std::string(pass.name);
  user_error("no pass named '{}'; there are {}", name, known);
}

std::span<const std::string_view> compile_pipeline() { return kPipeline; }

}  // namespace weft::passes
