#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "passes/rewrite.h"
#include "passes/rolling/op_sequence.h"

namespace weft::passes {

/// A repetition in a sequence: `count` steps of `period` ops each.
struct Steps {
  size_t start, period, count;

  size_t end() const { return start + period * count; }
  bool contains(int64_t place) const {
    return place >= static_cast<int64_t>(start) && place < static_cast<int64_t>(end());
  }
  size_t step(int64_t place) const { return (static_cast<size_t>(place) - start) / period; }
  size_t offset(int64_t place) const { return (static_cast<size_t>(place) - start) % period; }
};

/// Where the values of an x come from: one for each step, in the order in which the steps ran.
struct XSource {
  enum class Kind { kSlices, kNumbers, kValues };
  Kind kind;
  ir::ValueId whole = ir::kNoValue;  ///< kSlices: of this, along `dim`, from first + step * stride, `extent` long
  int64_t dim = 0, first = 0, stride = 0, extent = 0;
  bool is_row = false;  ///< the dim, of size 1, is dropped
  std::vector<double> numbers = {};
  std::vector<ir::ValueId> values = {};
};

/// The body that all steps share. The inits of its carries, the sources of its xs and the values that it captures are
/// values of the sequence; results and stacks don't exist yet.
struct StepBody {
  ScanParts parts;
  std::vector<XSource> sources;                   ///< of parts.xs
  std::vector<std::vector<ir::ValueId>> results;  ///< by place in the step: what the results are in the body
};

/// Finds one body for the steps of a repetition. The values that the steps read in one place form a tuple, one value a
/// step. Each tuple becomes one value of the body:
///
/// - the same value from outside in each step: captured
/// - a value of the same step
/// - a value from outside in the first step, then a value of the step before: a carry
/// - in some steps a value of the step before, in others one from outside (teacher forcing by a list): a choice of both
/// - slices of one value at places that go up or down evenly, numbers, or any other values from outside: an x
/// - floating ops of one form: that op, on the body's value for the tuple of their operands
///
/// The match is exact: the body, run for each step, does what the ops did.
class StepMatch {
 public:
  StepMatch(ir::Program& program, const OpSequence& sequence, Steps steps)
      : program_(program), sequence_(sequence), steps_(steps) {}

  /// True iff the steps have a body.
  bool run();
  /// After run() has failed: fewer of the steps, for which there may be a body; at most two steps if there is no hope.
  Steps narrower() const;

  StepBody body;

 private:
  using Tuple = std::vector<ir::ValueId>;
  struct Known {
    Tuple tuple;
    ir::ValueId value;
  };
  struct Pending {
    size_t carry;
    Tuple tuple;  ///< what the carry is at the end of each step but the last
  };
  struct Mark {
    size_t ops, carries, xs, pending, known;
  };

  bool match_op(size_t offset);
  bool match_forms(size_t offset);
  ir::ValueId unify(const Tuple& tuple);
  ir::ValueId unify_new(const Tuple& tuple);
  ir::ValueId captured(const Tuple& tuple);
  ir::ValueId of_the_same_step(const Tuple& tuple) const;
  ir::ValueId floating(const Tuple& tuple);
  ir::ValueId carry(const Tuple& tuple);
  ir::ValueId choice(const Tuple& tuple);
  ir::ValueId rows(const Tuple& tuple);
  ir::ValueId slices(const Tuple& tuple, const ir::Type& type, bool is_row);
  ir::ValueId numbers(const Tuple& tuple);
  ir::ValueId values(const Tuple& tuple);
  ir::ValueId add_x(XSource source, const ir::Type& type);

  bool is_of_the_step_before(const Tuple& tuple) const;
  /// Whether the value depends on an op of the steps.
  bool is_inside(ir::ValueId v) const;
  bool same_outside(ir::ValueId a, ir::ValueId b) const;
  size_t relation(ir::ValueId v, size_t step, bool tells_outside_apart) const;
  bool fail(Tuple tuple);
  Mark mark() const;
  void undo(const Mark& mark);
  ir::ValueId append(const ir::Op& model, ir::ValueId operand);
  ir::ValueId append(ir::OpCode code, std::vector<ir::ValueId> operands, ir::Attrs attrs, ir::Type type);

  ir::Program& program_;
  const OpSequence& sequence_;
  Steps steps_;
  std::vector<Pending> pending_;
  std::unordered_map<size_t, std::vector<Known>> known_;
  std::vector<size_t> known_keys_;
  bool is_weight_ = false;  ///< whether the values being matched are weights, which stacking would copy
  Tuple failed_;
};

}  // namespace weft::passes
