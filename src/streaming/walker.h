#pragma once

#include <span>
#include <vector>

#include "ir/text/call_text.h"
#include "passes/native_calls/windows.h"
#include "streaming/writer.h"

namespace weft::streaming {

/// Rewrites the whole program's ops, in order, as those of a chunk.
class Walker {
 public:
  Walker(const ir::Program& whole, Writer& writer);

  /// Adds an input with time along this dim; an input without a time dim is given again with each chunk. `group`: the
  /// size of the dim after the time dim (streaming.h).
  void add_input(ir::ValueId input, std::optional<size_t> time_dim, int64_t group);
  void add_weight(ir::ValueId weight);
  void walk();
  /// The result in the step program. `delay`: how many steps it may lag behind its inputs. `group`: as of an input.
  Stream output(ir::ValueId result, int64_t delay, int64_t group);

 private:
  using Streams = std::vector<Stream>;

  // ---- walker.cpp
  void visit(const ir::Op& op);
  Stream& at(ir::ValueId value) { return streams_.at(value); }
  Streams operands_of(const ir::Op& op);
  void define(const ir::Op& op, size_t result, Stream stream, const Streams& operands);
  void plain(const ir::Op& op, Stream::Kind kind);
  /// `taker`: the op that takes the value from the sequence's end, if that is another one.
  void end(const ir::Op& op, std::string needs, const ir::Op* taker = nullptr);
  void define_uniform(const ir::Op& op, const Streams& operands);
  Stream::Kind kind_without_time(const ir::Op& op, const Streams& operands);
  /// A number of chunks that is so large that no size of the whole is clamped at zero.
  static constexpr int64_t kChunks = 4096;
  /// The number of the whole's elements after kChunks chunks.
  int64_t whole_length(const Stream& timed) const;
  int64_t ahead_of(const Stream& timed) const;
  [[noreturn]] void refuse_end(const ir::Op& op, const Stream& end);
  /// The chunk from which on the value is known; Stream::kAtStart for what follows from the weights.
  static int64_t known_from(const Stream& stream);
  ir::ValueId in_step(const Stream& free);
  ir::ValueId in_chunk(const Stream& free, int64_t chunk);
  ir::ValueId in_start(const ir::Op& op, const Stream& free);
  /// Elements of a sequence of this length: a chunk, or those in front of the first chunk.
  struct Part {
    bool is_chunk, is_step;  ///< is_step: they are values of the step program
    ir::Dim length;
    int64_t elements;
  };
  static Part chunk_of(const Stream& timed) { return {true, true, timed.time.length, timed.per_chunk}; }
  static Part lead_of(const Stream& timed) { return {false, timed.since >= 0, timed.time.length, timed.lead()}; }
  ir::ValueId uniform(const ir::Op& reader, const Stream& uniform, const Part& part);
  ir::ValueId value_in(const ir::Op& reader, const Stream& stream, const Part& part);
  ir::ValueId emit(const ir::Op& op, const Streams& operands, const Part& part);

  // ---- local_ops.cpp: ops that do the same at each step
  void local(const ir::Op& op);
  Streams aligned(const ir::Op& op, Streams streams);
  Streams known_together(const ir::Op& op, Streams streams);
  Streams late_enough(Streams streams, int64_t known, bool keeps_lead);
  Streams guarded(const ir::Op& op, Streams streams);
  void harmless_before(const ir::Op& op, int64_t since, passes::Substitution& map);
  Stream free_running(const ir::Op& op, size_t dim, const ir::Dim& length) const;
  Stream timed_again(const ir::Op& op, const Stream& stream);
  TimeDim time_after(const ir::Op& op, const Streams& operands);
  TimeDim moved(const ir::Op& op, size_t operand, const Stream& stream);
  TimeDim product(const ir::Op& op, size_t operand, const Stream& stream);
  TimeDim reshaped(const ir::Op& op, const TimeDim& time);

  // ---- time_ops.cpp: ops along time
  bool is_along_time(const ir::Op& op, const Streams& operands);
  void along_time(const ir::Op& op, const Streams& operands);
  Stream time_operand(const ir::Op& op, const Stream& stream, size_t dim);
  void slice(const ir::Op& op, const Streams& operands);
  void latch(const ir::Op& op, const Stream& from, int64_t first, int64_t count);
  void last(const ir::Op& op, const Stream& from);
  void pad(const ir::Op& op, const Streams& operands);
  void concat(const ir::Op& op, const Streams& operands);
  bool is_length(const ir::Op& op) const;
  bool is_count(const ir::Op& op) const;
  void count(const ir::Op& op);
  void positions(const ir::Op& op);
  bool is_frames(const ir::Op& op, const Stream& stream);
  void frames(const ir::Op& op, const Streams& operands);
  Stream after_constants(const Stream& stream, int64_t elements, double fill);
  Stream behind(const Stream& front, int64_t elements, Stream stream);
  ir::ValueId with_front(ir::ValueId front, int64_t elements, const Stream& stream);

  // ---- scans.cpp
  void scan(const ir::Op& op);
  void other_region(const ir::Op& op, const Streams& operands);
  Streams stacks_of(const ir::Op& op, const ir::ScanView& view, Streams xs, int64_t known, Stream& like);
  int64_t known_before(const ir::Op& op, const Streams& inits);
  bool is_over_time(const ir::Op& op) const;
  void refuse_timed_region(const ir::Op& op);
  passes::Substitution captured_by(const ir::Op& op, bool is_step);
  Streams captures_of(const ir::Op& op);

  // ---- externs.cpp: convolutions and pooling
  /// The result, given a value in which the windows lie, where the first of them is, and their number, by spatial dim.
  using OfWindows = std::function<ir::ValueId(ir::Builder&, const passes::Windows&, ir::ValueId,
                                              const std::vector<int64_t>& begins, const std::vector<int64_t>& counts)>;
  using Fold = std::function<ir::ValueId(ir::Builder&, const std::vector<ir::ValueId>& taps)>;
  void external(const ir::Op& op);
  /// A convolution as windows, with its weights in both programs.
  struct Convolution {
    passes::Windows windows;
    std::vector<int64_t> spread;  ///< by spatial dim: the distance of x's elements after zeros are inserted
    passes::ConvolutionWeights start, step;
  };
  Convolution convolution_of(const ir::Op& op, const ir::CallText& call);
  void convolution(const ir::Op& op, const ir::CallText& call);
  std::optional<ir::ValueId> in_region(const ir::Op& op, ir::Builder& body, const passes::Substitution& map,
                                       bool is_step);
  void pool(const ir::Op& op, const ir::CallText& call, bool is_mean);
  void repeat(const ir::Op& op, const ir::CallText& call);
  void unfold(const ir::Op& op, const ir::CallText& call);
  void strided_slice(const ir::Op& op, const ir::CallText& call);
  Stream moving(const ir::Op& op, Stream x, passes::Windows windows, const ir::Shape& shape,
                const OfWindows& of_windows);
  Stream folded(const ir::Op& op, Stream x, passes::Windows windows, const ir::Shape& shape, const Fold& fold);
  Stream spread(const ir::Op& op, const Stream& stream, size_t dim, int64_t times);
  Stream permuted(const Stream& stream, const std::vector<int64_t>& perm);

  int64_t used_of_frames(const ir::Op& frames, size_t dim) const;

  const ir::Program& whole_;
  const Lengths& lengths_;
  Writer& writer_;
  std::unordered_map<ir::ValueId, Stream> streams_;
  std::map<std::pair<uint64_t, std::vector<int64_t>>, Stream> permuted_;  ///< by origin and order of dims
};

/// a / b rounded up, for b > 0.
inline int64_t ceil_divide(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

}  // namespace weft::streaming
