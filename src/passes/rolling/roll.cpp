#include "passes/rolling/roll.h"

#include <algorithm>
#include <set>

#include "passes/rolling/periods.h"
#include "passes/rolling/rolled_loop.h"
#include "passes/rolling/separate_writes.h"
#include "passes/simplification/dce.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::kNoValue;
using ir::Op;
using ir::OpClass;
using ir::Program;
using ir::Type;
using ir::ValueId;

constexpr size_t kFewestSteps = 3;

bool is_heavy(const Block& block);

/// Whether the op is so slow that a loop's overhead is small beside it.
bool is_heavy(const Op& op) {
  OpClass kind = ir::info(op.code).op_class;
  return kind == OpClass::kProduct || kind == OpClass::kRegion ||
         ir::traits_of(op.code).batching == ir::Batching::kLookup ||
         std::ranges::any_of(op.regions, [](const Block& region) { return is_heavy(region); });
}

bool is_heavy(const Block& block) {
  return std::ranges::any_of(block.ops, [](const Op& op) { return is_heavy(op); });
}

/// Whether a loop pays. Unrolled steps fuse with each other and with the ops around them. A short loop inside another
/// does not pay, since then the outer loop could not be one function of machine code.
bool pays(const StepBody& body, const Steps& steps, bool in_loop) {
  constexpr size_t kFewestInLoop = 8;
  constexpr size_t kLongInLoop = 96;
  size_t ops = steps.count * steps.period;
  if (in_loop && steps.count < kFewestInLoop && ops < kLongInLoop) return false;
  if (std::ranges::any_of(body.parts.ops, [](const Op& op) { return is_heavy(op); })) return true;
  // A polynomial repeats an addition and a product too. A loop over time reads another slice in each step.
  bool reads_slices =
      std::ranges::any_of(body.sources, [](const XSource& source) { return source.kind == XSource::Kind::kSlices; });
  constexpr size_t kFew = 8;
  constexpr size_t kMany = 192;
  return ops >= (reads_slices ? kFew : kMany);
}

/// One sweep over a block: finds loops from front to back and writes the block anew.
class Sweep {
 public:
  Sweep(Program& program, Block& block, bool in_loop)
      : program_(program),
        block_(block),
        in_loop_(in_loop),
        sequence_(program, std::move(block.ops)),
        writer_(program, sequence_) {}

  /// True iff a loop was rolled; the block stays as it was otherwise.
  bool run(bool strong) {
    forms_ = sequence_.tokens(false);
    Periods periods(strong ? sequence_.tokens(true) : forms_);
    for (size_t at = 0; at < sequence_.size();) {
      size_t end = roll_at(periods, at);
      at = end == 0 ? at + 1 : end;
    }
    if (written_ == 0) {
      block_.ops = sequence_.release();
      return false;
    }
    write_until(sequence_.size());
    for (ValueId& v : block_.results) v = writer_.written(v);
    block_.ops = writer_.finish();
    return true;
  }

 private:
  /// The place behind the loop that was rolled, or 0.
  size_t roll_at(const Periods& periods, size_t at) {
    for (const Repetition& each : periods.at(at)) {
      if (!tried_.insert({each.period, each.end}).second) continue;
      Steps steps = aligned(extended(each));
      for (int attempt = 0; attempt < kAttempts && steps.count >= kFewestSteps; ++attempt) {
        StepMatch match(program_, sequence_, steps);
        if (match.run()) {
          if (!pays(match.body, steps, in_loop_)) break;
          write_until(steps.start);
          writer_.write(std::move(match.body), steps);
          written_ = steps.end();
          tried_.clear();  // the rest of a repetition may be a loop of its own
          return written_;
        }
        steps = match.narrower();
      }
    }
    return 0;
  }

  void write_until(size_t end) {
    for (; written_ < end; ++written_) writer_.write(sequence_.op(written_));
  }

  /// Extends a repetition by up to a step at each end, as long as the ops have the same forms. The operands may differ:
  /// those of the first step are the carries' inits.
  Repetition extended(Repetition r) const {
    size_t first = r.start - std::min(r.start - written_, r.period);
    size_t last = std::min(r.end + r.period, forms_.size());
    while (r.start > first && forms_[r.start - 1] == forms_[r.start - 1 + r.period]) --r.start;
    while (r.end < last && forms_[r.end] == forms_[r.end - r.period]) ++r.end;
    return r;
  }

  /// Chooses where a step begins: where the fewest values go from one step to the next. Otherwise ops in front of the
  /// loop that look like the end of a step would shift all steps.
  Steps aligned(const Repetition& r) const {
    size_t count = (r.end - r.start) / r.period;
    if (count < kFewestSteps) return {r.start, r.period, 0};
    size_t spare = (r.end - r.start) % r.period;
    size_t best = 0;
    if (spare > 0) {
      std::vector<size_t> crossings = crossings_of({r.start, r.period, count});
      for (size_t offset = 1; offset <= spare; ++offset)
        if (crossings[offset] < crossings[best]) best = offset;
    }
    return {r.start + best, r.period, count};
  }

  /// For each place of a middle step: the number of values that are computed before the place and read at or after it.
  std::vector<size_t> crossings_of(const Steps& steps) const {
    size_t begin = steps.start + (steps.count - kFewestSteps) / 2 * steps.period;
    std::vector<size_t> last(steps.period, 0);  // the last place that reads a value of the window's first step
    for (size_t place = begin; place < begin + 2 * steps.period; ++place)
      for (size_t i = 0; i < sequence_.read_count(place); ++i) {
        int64_t from = sequence_.place(sequence_.root(sequence_.read(place, i)));
        if (from < static_cast<int64_t>(begin) || from >= static_cast<int64_t>(begin + steps.period)) continue;
        last[static_cast<size_t>(from) - begin] = place;
      }
    std::vector<size_t> crossings(steps.period, 0);
    for (size_t offset = 0; offset < steps.period; ++offset)
      for (size_t place = begin + offset + 1; place <= last[offset]; ++place)
        ++crossings[(place - begin) % steps.period];
    return crossings;
  }

  static constexpr int kAttempts = 6;

  Program& program_;
  Block& block_;
  bool in_loop_;
  OpSequence sequence_;
  RolledWriter writer_;
  std::vector<size_t> forms_;
  std::set<std::pair<size_t, size_t>> tried_;  ///< period and end of repetitions
  size_t written_ = 0;                         ///< the ops before this place are in the new block
};

bool roll_block(Program& program, Block& block, bool in_loop) {
  constexpr int kMostSweeps = 4;  // one for each level of nested loops
  bool rolled = false;
  for (int i = 0; i < kMostSweeps; ++i) {
    bool again = Sweep(program, block, in_loop).run(/*strong=*/true);
    again = Sweep(program, block, in_loop).run(/*strong=*/false) || again;
    if (!again) break;
    rolled = true;
  }
  for (Op& op : block.ops) {
    if (op.has("rows")) continue;  // the steps of a ragged scan differ in their number of rows
    for (Block& region : op.regions) rolled = roll_block(program, region, /*in_loop=*/true) || rolled;
  }
  return rolled;
}

}  // namespace

void roll(Program& program) {
  // A program without loops must not change, so dead ops are removed only if a loop was rolled.
  std::optional<Program> separated = separate_writes(program);
  if (separated && roll_block(*separated, separated->body, /*in_loop=*/false)) {
    program = std::move(*separated);
  } else if (!roll_block(program, program.body, /*in_loop=*/false)) {
    return;
  }
  dce(program);
}

}  // namespace weft::passes
