// The table of contents: every pass, and the order in which a program is compiled.
#include <array>

#include "passes/differentiation/drop_derivatives.h"
#include "passes/differentiation/vjp.h"
#include "passes/loops/hoist.h"
#include "passes/loops/merge_stacks.h"
#include "passes/loops/sink.h"
#include "passes/loops/split_carries.h"
#include "passes/pass_runner.h"
#include "passes/rolling/roll.h"
#include "passes/rolling/symbolic_lengths.h"
#include "passes/simplification/canonicalise.h"
#include "passes/simplification/cse.h"
#include "passes/simplification/dce.h"
#include "passes/simplification/promote_sums.h"
#include "passes/simplification/push_slices.h"
#include "passes/simplification/reassociate.h"

namespace weft::passes {
namespace {

/// The pass `vjp`: makes the program of the cotangents of all floating inputs.
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
    {"split_carries", split_carries},
    {"reassociate", reassociate},
    {"hoist", hoist},
    {"push_slices", push_slices},
    {"sink", sink},
    {"merge_stacks", merge_stacks},
    {"drop_derivatives", drop_derivatives},
    {"roll", roll},
    {"symbolic_lengths", symbolic_lengths},
};

constexpr std::string_view kPipeline[] = {
    // The program is not differentiated any more.
    "drop_derivatives",
    // Products of f16 and bf16 become products of f32 between casts, which the passes below simplify.
    "promote_sums",
    // The passes below look for the canonical forms.
    "canonicalise", "cse", "dce",
    // Splits carries that steps read in parts, so that the passes below see which op depends on which part.
    "split_carries",
    // Separates, in sums and products, the parts that depend on no carry, so that hoist can move them.
    "reassociate",
    // Moves ops that depend on no carry in front of the loop. Before sink, so that sink stacks only values that the
    // loop computes.
    "hoist",
    // Gates become slices of the loop's products. After hoist, so that a projection leaves the loop as one stack.
    "push_slices",
    // Simplifies the ops that hoist has put side by side (a bias added to a projection, broadcasts of broadcasts).
    "canonicalise",
    // Moves the slices of captured values that push_slices has made.
    "hoist",
    // Moves ops that no carry needs behind the loop.
    "sink", "canonicalise", "cse", "dce",
    // Merges stacks made by sink that share columns. It undoes canonical forms, so it comes last.
    "merge_stacks",
    // A target's own passes follow (planning::Target::layout_passes).
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
