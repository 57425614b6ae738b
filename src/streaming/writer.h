#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "passes/rewrite.h"
#include "streaming/lengths.h"
#include "streaming/stream.h"
#include "streaming/streaming.h"

namespace weft::streaming {

/// By origin: the length of the longest history that is read.
using Histories = std::map<uint64_t, int64_t>;

/// Writes the two programs: the step for a chunk, and the start with what there is before the first chunk. Both begin
/// with the whole program's values, so that an id has the same type in all three programs.
class Writer {
 public:
  /// `histories`: the lengths of histories that an earlier run over this program found. With these lengths one history
  /// serves all of its readers.
  Writer(const ir::Program& whole, const Lengths& lengths, int64_t chunk, Histories histories);

  const Lengths& lengths() const { return lengths_; }
  int64_t chunk() const { return chunk_; }
  ir::Builder& step() { return step_; }
  ir::Builder& start() { return start_; }

  // ---- inputs
  ir::ValueId add_input(const ir::Type& type);
  Stream add_weight(const ir::Type& type);

  // ---- values
  /// Of the program that the elements in front of the first chunk are computed in.
  ir::Builder& before(const Stream& timed) { return timed.since < 0 ? start_ : step_; }
  /// A new origin, for a timed value that no op of the whole program defines.
  uint64_t new_origin() { return next_origin_++; }
  /// The constant in the step program: a weight, a result of the start program, or an op that costs nothing.
  ir::ValueId in_step(const Stream& constant);
  /// Makes `step`, a value of the step program, stand for the constant, which costs nothing to compute again at each
  /// step.
  void set_cheap(const Stream& constant, ir::ValueId step) { in_step_[constant.start] = step; }
  /// The elements before the first chunk; an empty tensor if there are none.
  static Stream constant(ir::ValueId start);

  /// The elements in front of the first chunk; a tensor of none where there are none.
  ir::ValueId lead_of(const Stream& timed);
  /// A timed value that is computed from `from`: `make(builder, value, elements)` is called for the chunk, and for the
  /// elements before the first chunk if there are any.
  using Make = std::function<ir::ValueId(ir::Builder&, ir::ValueId, int64_t elements)>;
  Stream made(const Stream& from, TimeDim time, const Make& make);

  // ---- time. Each of these gives a value of the same elements.
  /// With the time as a dim of its own.
  Stream apart(const Stream& timed);
  /// Undoes apart(): the value with its original time dim.
  Stream merged(const Stream& apart, const TimeDim& time);
  /// The stream with a time dim that holds steps and nothing else (outer is 1): the `inner` elements of one step count
  /// as steps of a faster time.
  Stream as_time(const Stream& timed);
  /// The stream, delayed by this many elements.
  Stream delayed(const Stream& timed, int64_t elements);
  /// The chunk with the `elements` elements before it, of a value whose time is apart.
  ir::ValueId with_history(const Stream& apart, int64_t elements);
  /// The same elements, known from this chunk on, with those in front of it as values of the step program.
  Stream from_chunk(const Stream& timed, int64_t chunk);
  /// The stream with `fill` in place of elements with a negative index, and of what chunks before the first one hold.
  Stream masked(const Stream& timed, double fill);
  /// bool[elements]: whether an element of the chunk belongs to the whole (has no negative index).
  ir::ValueId mask(int64_t elements, int64_t shift);
  /// i64[elements]: the index of each element of the chunk.
  ir::ValueId positions(int64_t elements, int64_t shift);

  // ---- elements at fixed places
  /// The `count` elements from index `first` on, of a stream with a dim of steps and nothing else: kLatched, or
  /// kConstant if they lie before all chunks.
  Stream latched(const Stream& timed, int64_t first, int64_t count);
  /// `value`, which is right in this chunk, from that chunk on: a state that is set in it, and is `fill` before.
  ir::ValueId held(ir::ValueId value, int64_t chunk, double fill = 0);
  /// bool[]: whether this is the chunk.
  ir::ValueId is_chunk(int64_t chunk);
  /// `yes` in this chunk, else `no`.
  ir::ValueId in_chunk(int64_t chunk, ir::ValueId yes, ir::ValueId no);

  // ---- state
  /// Adds a state with this initial value of the start program. Returns its value in the step program.
  ir::ValueId add_state(std::string name, ir::ValueId initial);
  /// Sets the state's value after the chunk.
  void set_next(ir::ValueId state, ir::ValueId next) { states_[state_at_.at(state)].next = next; }

  const Histories& histories() const { return wanted_; }
  /// The programs, with these results.
  Streamed finish(const std::vector<ir::ValueId>& outputs);

  /// One of the two programs, for new values (of a region) that belong to no value of the whole.
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
  std::vector<std::pair<ir::ValueId, Constant>> constants_;  ///< of the step: the input, and which constant it takes
  std::vector<ir::ValueId> derived_;                         ///< of the start program
  std::unordered_map<ir::ValueId, ir::ValueId> in_step_;     ///< by the constant in the start program
  std::unordered_map<ir::ValueId, size_t> weight_at_;
  std::vector<State> states_;
  std::unordered_map<ir::ValueId, size_t> state_at_;
  Histories planned_, wanted_;
  std::map<uint64_t, Kept> kept_;
  ir::ValueId counter();
  ir::ValueId initial_history(const Stream& apart, int64_t kept);
  /// The elements before a chunk, with the stream's lead in their place in its first chunk.
  ir::ValueId with_lead(const Stream& apart, ir::ValueId before);

  std::map<std::pair<int64_t, int64_t>, ir::ValueId> masks_, positions_;
  std::map<std::tuple<ir::ValueId, int64_t, double>, ir::ValueId> held_;
  std::map<int64_t, ir::ValueId> is_chunk_;
  ir::ValueId counter_ = ir::kNoValue;
  uint64_t next_origin_ = 0;
};

/// The shape with another number of elements in one dim.
ir::Shape with_size(ir::Shape shape, size_t dim, int64_t size);
/// `part` followed by `value`, along a dim; just the other if one is empty.
ir::ValueId joined(ir::Builder& builder, ir::ValueId part, ir::ValueId value, size_t dim);

}  // namespace weft::streaming
