#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "ir/program.h"
#include "passes/rewrite.h"

namespace weft::streaming {

/// Where time is in a value: dim `dim` is outer * length * inner elements, row-major. So `[B,T,F]` and, seen as rows,
/// `[B*T,F]` hold the same time.
struct TimeDim {
  size_t dim = 0;
  int64_t outer = 1, inner = 1;
  ir::Dim length;  ///< of the whole sequence, in terms of its number of steps

  bool is_apart() const { return outer == 1 && inner == 1; }
  bool operator==(const TimeDim&) const = default;
};

/// A value of the whole model, as the streaming model has it.
struct Stream {
  enum class Kind : uint8_t {
    kConstant,  ///< follows from the weights
    kHeld,      ///< computed from inputs without time, which are given with each chunk
    kUniform,   ///< has time, but all its elements are equal: computed where it is read
    kTimed,     ///< differs from step to step
    kLatched,   ///< follows from elements at fixed places from the beginning: known when they have come
    kLast,      ///< after each chunk: the value if the sequence ended there: a last step, a loop's last carry
    kEnd        ///< is known only at the sequence's end
  };
  Kind kind = Kind::kConstant;

  // ---- kTimed
  TimeDim time;
  int64_t per_chunk = 0;  ///< elements of a chunk
  /// Chunk c holds the elements from index c * per_chunk - shift on. Elements with a negative index aren't part of the
  /// whole: no result depends on them.
  int64_t shift = 0;
  uint64_t origin = 0;  ///< values of one origin have the same elements with shifted indices, and share a history

  // ---- kTimed, kLatched, kUniform
  /// The first chunk in which the value is known. Of kTimed: what the chunks before it hold isn't part of the whole,
  /// and the elements in front of that chunk follow from elements at fixed places. kAtStart: all is known from the
  /// first chunk on, and what is in front of it follows from the weights.
  int64_t since = kAtStart;
  static constexpr int64_t kAtStart = -1;
  bool is_held = false;  ///< kLatched: `step` is the value from chunk `since` on, else in that chunk alone

  // ---- kLast, kTimed
  /// Minus the number of elements at the end of the whole that would change if the sequence went on: those that depend
  /// on padding at its end.
  int64_t settled = 0;
  /// How many elements the chunks so far lack of the elements that the whole model has for the same steps: more than 0
  /// if an op looks ahead.
  int64_t ahead = 0;
  const ir::Op* looks_ahead = nullptr;  ///< the op that looks ahead

  /// The value in the step program. kTimed: the chunk's elements. kConstant: set only after Writer::in_step() was
  /// called for it.
  ir::ValueId step = ir::kNoValue;
  /// The value in the start program. kConstant: the value itself. kTimed: the lead() elements before the first chunk,
  /// which depend on weights alone; if `since` is a chunk, a value of the step program, which is right in that chunk.
  ir::ValueId start = ir::kNoValue;

  const ir::Op* maker = nullptr;  ///< kUniform: the op of the whole program
  std::string needs;              ///< kEnd: which part of the sequence's end it needs, in words

  int64_t first_chunk() const { return std::max<int64_t>(since, 0); }
  /// How many elements there are before the first chunk.
  int64_t lead() const { return std::max<int64_t>(first_chunk() * per_chunk - shift, 0); }
  /// The chunk that element 0 is in, or the first one if it lies before that.
  int64_t chunk_of_first() const { return lead() > 0 ? first_chunk() : shift / per_chunk; }
};

/// The user's error for an op that can't be streamed.
class RefusedError : public Error {
 public:
  RefusedError(const std::string& what, int64_t operation) : Error(what), operation(operation) {}
  int64_t operation;  ///< the recorded operation that the op is a part of, -1 where the program doesn't say
};

/// Throws RefusedError. `why` says what is wrong, and what would be right.
template <typename... Args>
[[noreturn]] void refuse(const ir::Op& op, fmt::format_string<Args...> why, Args&&... args) {
  std::string name(ir::info(op.code).name);
  if (ir::traits_of(op.code).calls_out) {
    const auto& call = op.attr<std::string>("call");
    name = call.substr(0, call.find('('));
  }
  const bool is_known = op.has(passes::kSourceOperation);
  throw RefusedError(name + " " + fmt::format(why, std::forward<Args>(args)...),
                     is_known ? op.attr<int64_t>(passes::kSourceOperation) : -1);
}

}  // namespace weft::streaming
