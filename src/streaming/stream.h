#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "ir/program.h"

namespace weft::streaming {

/// Where time is in a value: dim `dim` is outer * length * inner elements, row-major. So `[B,T,F]` and, seen as rows,
/// `[B*T,F]` hold the same time.
struct TimeDim {
  size_t dim = 0;
  int64_t outer = 1, inner = 1;
  ir::Dim length;  ///< of the whole sequence, as an expression of its steps

  bool is_apart() const { return outer == 1 && inner == 1; }
  bool operator==(const TimeDim&) const = default;
};

/// What a value of the whole model is in the streaming one.
struct Stream {
  enum class Kind : uint8_t {
    kConstant,  ///< follows from the weights
    kHeld,      ///< follows from inputs without time, which each chunk is given
    kUniform,   ///< has a time, but the same element at each: it is made where it is read
    kTimed,     ///< differs from step to step
    kLast,      ///< after each chunk it is what it would be if the sequence ended there: a loop's last carry
    kEnd        ///< is known only at the sequence's end
  };
  Kind kind = Kind::kConstant;

  // ---- kTimed
  TimeDim time;
  int64_t per_chunk = 0;  ///< elements of a chunk
  /// Chunk c holds the elements from c * per_chunk - shift on. Those of a negative number are no elements of the whole:
  /// nothing that a result has reads them.
  int64_t shift = 0;
  uint64_t origin = 0;  ///< values of one origin have the same elements, under other numbers: their histories are one

  // ---- kLast, kTimed
  /// Minus the number of elements, the last ones of the whole, that would be others if the sequence went on: those that
  /// read what pads its end.
  int64_t settled = 0;
  /// How many elements of time the whole has that the chunks so far don't: more than 0 where it looks ahead.
  int64_t ahead = 0;
  const ir::Op* looks_ahead = nullptr;  ///< the op by which it does

  /// In the step program: of kTimed the chunk's elements. Of kConstant only where `writer.h` has been asked for it.
  ir::ValueId step = ir::kNoValue;
  /// In the start program: the value of kConstant; of kTimed the elements in front of the first chunk's, of which there
  /// are lead() and which follow from weights alone.
  ir::ValueId start = ir::kNoValue;

  const ir::Op* maker = nullptr;  ///< kUniform: the op of the whole program
  std::string needs;              ///< kEnd: what of the end it needs

  /// How many elements there are before the first chunk.
  int64_t lead() const { return shift < 0 ? -shift : 0; }
};

/// The user's error: an op that can't be streamed.
class RefusedError : public Error {
 public:
  RefusedError(const std::string& what, int64_t operation) : Error(what), operation(operation) {}
  int64_t operation;  ///< the recorded operation that the op is a part of, -1 where the program doesn't say
};

/// The note on an op of which recorded operation it is a part.
inline constexpr std::string_view kSourceOperation = "source.operation";

/// Throws RefusedError: `why` says what is wrong, and what would be right.
template <typename... Args>
[[noreturn]] void refuse(const ir::Op& op, fmt::format_string<Args...> why, Args&&... args) {
  std::string name(ir::info(op.code).name);
  if (ir::traits_of(op.code).calls_out) {
    const auto& call = op.attr<std::string>("call");
    name = call.substr(0, call.find('('));
  }
  const bool is_known = op.has(kSourceOperation);
  throw RefusedError(name + " " + fmt::format(why, std::forward<Args>(args)...),
                     is_known ? op.attr<int64_t>(kSourceOperation) : -1);
}

}  // namespace weft::streaming
