#pragma once

#include <functional>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "passes/rewrite.h"
#include "streaming/lengths.h"
#include "streaming/stream.h"
#include "streaming/streaming.h"

namespace weft::streaming {

/// The longest history that somebody reads of each origin.
using Histories = std::map<uint64_t, int64_t>;

/// Writes the two programs: what a chunk does, and what there is before the first one. Both begin with the whole
/// program's values, so that its ids stand for the same types in all three.
class Writer {
 public:
  /// `histories`: as an earlier run over the same program has found them, so that one history serves all its readers.
  Writer(const ir::Program& whole, const Lengths& lengths, int64_t chunk, Histories histories);

  const Lengths& lengths() const { return lengths_; }
  int64_t chunk() const { return chunk_; }
  ir::Builder& step() { return step_; }
  ir::Builder& start() { return start_; }

  // ---- inputs
  ir::ValueId add_input(const ir::Type& type);
  Stream add_weight(const ir::Type& type);

  // ---- values
  /// A value of the step program's that isn't defined by an op of the whole: it has an origin of its own.
  uint64_t new_origin() { return next_origin_++; }
  /// The constant in the step program: a weight, a result of the start program, or an op that costs nothing.
  ir::ValueId in_step(const Stream& constant);
  /// Has the step program compute the constant as `step`, since doing its ops again costs nothing.
  void set_cheap(const Stream& constant, ir::ValueId step) { in_step_[constant.start] = step; }
  /// A constant made in the start program.
  static Stream constant(ir::ValueId start);

  /// The elements in front of the first chunk; a tensor of none where there are none.
  ir::ValueId lead_of(const Stream& timed);
  /// A timed value by what makes it: `make(builder, value, elements)` is called for the chunk, and for the elements in
  /// front of the first one if there are some.
  using Make = std::function<ir::ValueId(ir::Builder&, ir::ValueId, int64_t elements)>;
  Stream made(const Stream& from, TimeDim time, const Make& make);

  // ---- time. Each of these gives a value of the same elements.
  /// With the time as a dim of its own.
  Stream apart(const Stream& timed);
  /// As it was before it was set apart.
  Stream merged(const Stream& apart, const TimeDim& time);
  /// With the time's dim, outer = 1, as nothing but time: elements that are beside each other at one time count as
  /// later ones of a faster time.
  Stream as_time(const Stream& timed);
  /// So many elements later.
  Stream delayed(const Stream& timed, int64_t elements);
  /// The chunk with so many elements in front of it, of a value whose time is apart.
  ir::ValueId with_history(const Stream& apart, int64_t elements);
  /// With zeros (or `fill`) for the elements of a negative number.
  Stream masked(const Stream& timed, double fill);
  /// bool[elements]: whether an element of the chunk is one of the whole's.
  ir::ValueId mask(int64_t elements, int64_t shift);
  /// i64[elements]: the number of each element of the chunk.
  ir::ValueId positions(int64_t elements, int64_t shift);

  // ---- state
  /// A state of this initial value, in the start program; the value that the step has of it.
  ir::ValueId add_state(std::string name, ir::ValueId initial);
  /// What it is after the chunk.
  void set_next(ir::ValueId state, ir::ValueId next) { states_[state_at_.at(state)].next = next; }

  const Histories& histories() const { return wanted_; }
  /// The programs, with these results.
  Streamed finish(const std::vector<ir::ValueId>& outputs);

  /// Both programs' names of a value of the whole that is no stream (of a region).
  ir::Program& program(bool is_step) { return is_step ? step_program_ : start_program_; }

 private:
  struct State {
    std::string name;
    ir::ValueId value, initial, next;
  };
  struct Kept {
    ir::ValueId window;
    int64_t elements;
  };

  const Lengths& lengths_;
  int64_t chunk_;
  ir::Program step_program_, start_program_;
  ir::Builder step_, start_;
  std::vector<ir::ValueId> inputs_, weights_;
  std::vector<std::pair<ir::ValueId, Constant>> constants_;  ///< of the step: its input, and what it is
  std::vector<ir::ValueId> derived_;                         ///< of the start program
  std::unordered_map<ir::ValueId, ir::ValueId> in_step_;     ///< by the constant in the start program
  std::unordered_map<ir::ValueId, size_t> weight_at_;
  std::vector<State> states_;
  std::unordered_map<ir::ValueId, size_t> state_at_;
  Histories planned_, wanted_;
  std::map<uint64_t, Kept> kept_;
  std::map<std::pair<int64_t, int64_t>, ir::ValueId> masks_, positions_;
  ir::ValueId counter_ = ir::kNoValue;
  uint64_t next_origin_ = 0;
};

/// The shape with another number of elements in one dim.
ir::Shape with_size(ir::Shape shape, size_t dim, int64_t size);
/// `part` at the front of `value`, along a dim; without it where it is empty.
ir::ValueId joined(ir::Builder& builder, ir::ValueId part, ir::ValueId value, size_t dim);
/// Elements first..first+count-1 of a dim; the value itself where these are all.
ir::ValueId cut(ir::Builder& builder, ir::ValueId value, size_t dim, int64_t first, int64_t count);

}  // namespace weft::streaming
