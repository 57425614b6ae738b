#include "streaming/streaming.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>

#include "interpreter/interpreter.h"
#include "ir/builder.h"
#include "ir/text/call_text.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "programs.h"
#include "random_program.h"
#include "streaming/running_totals.h"
#include "streaming/stream.h"

namespace weft::streaming::streaming_test {
namespace {

using interpreter::Array;
using ir::Builder;
using ir::Dim;
using ir::OpCode;
using ir::Type;
using ir::ValueId;
using testing::error_of;
using Dims = std::vector<std::optional<size_t>>;

/// Elements first..first+count-1 along a dim.
Array part(const Array& array, size_t dim, int64_t first, int64_t count) {
  int64_t before = 1, after = 1;
  for (size_t i = 0; i < dim; ++i) before *= array.sizes[i];
  for (size_t i = dim + 1; i < array.sizes.size(); ++i) after *= array.sizes[i];
  std::vector<int64_t> sizes = array.sizes;
  sizes[dim] = count;
  std::vector<double> all = array.to_doubles(), values;
  for (int64_t b = 0; b < before; ++b)
    for (int64_t i = first; i < first + count; ++i)
      for (int64_t a = 0; a < after; ++a)
        values.push_back(all[static_cast<size_t>((b * array.sizes[dim] + i) * after + a)]);
  return Array::of(array.dtype, sizes, values);
}

/// How many elements of the whole's results the chunks were compared with, of each.
std::vector<int64_t> expect_chunks_give_the_whole(const ir::Program& whole, const Dims& dims, int64_t delay,
                                                  int64_t chunks, unsigned seed) {
  const Streamed streamed = stream(whole, dims, delay);
  ir::verify(streamed.step);
  ir::verify(streamed.start);
  const std::vector<Array> inputs = testing::random_inputs(whole, {{"T", chunks * streamed.chunk}}, seed);
  const std::vector<Array> weights(inputs.begin() + static_cast<std::ptrdiff_t>(dims.size()), inputs.end());
  const std::vector<Array> expected = interpreter::evaluate(whole, inputs);
  const std::vector<Array> begun = interpreter::evaluate(streamed.start, weights);
  const size_t states = streamed.states.size();
  std::vector<Array> state(begun.begin(), begun.begin() + static_cast<std::ptrdiff_t>(states));
  std::vector<int64_t> compared(expected.size());
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    std::vector<Array> given = state;
    for (size_t i = 0; i < dims.size(); ++i)
      given.push_back(dims[i] ? part(inputs[i], *dims[i], chunk * streamed.chunk, streamed.chunk) : inputs[i]);
    for (const Constant& constant : streamed.constants)
      given.push_back(constant.is_weight ? weights[constant.number] : begun[constant.number]);
    std::vector<Array> results = interpreter::evaluate(streamed.step, given);
    for (size_t i = 0; i < expected.size(); ++i) {
      const Port& port = streamed.outputs[i];
      if (!port.time_dim) continue;
      const int64_t first = chunk * port.per_chunk - port.lag;
      for (int64_t k = 0; k < port.per_chunk; ++k) {
        const int64_t number = first + k;
        if (number < 0 || number >= expected[i].sizes[*port.time_dim]) continue;
        const std::vector<double> want = part(expected[i], *port.time_dim, number, 1).to_doubles();
        const std::vector<double> got = part(results[states + i], *port.time_dim, k, 1).to_doubles();
        for (size_t j = 0; j < want.size(); ++j)
          EXPECT_NEAR(got[j], want[j], 1e-4 * std::max(std::abs(want[j]), 1.0))
              << "result " << i << ", step " << number << "\n"
              << ir::print(whole);
        ++compared[i];
      }
    }
    results.resize(states);
    state = std::move(results);
  }
  return compared;
}

/// The same for a text whose first input has its time along this dim.
void expect_streams(std::string_view text, size_t dim = 0, int64_t delay = 0) {
  for (int64_t chunks : {5, 9}) {
    const std::vector<int64_t> compared = expect_chunks_give_the_whole(ir::parse(text), {dim}, delay, chunks, 7);
    EXPECT_GT(compared[0], 0) << "nothing was compared\n" << text;
  }
}

std::string refusal(std::string_view text, const Dims& dims = {0}, int64_t delay = 0) {
  const ir::Program whole = ir::parse(text);
  return error_of([&] { stream(whole, dims, delay); });
}

TEST(Streaming, GivesWhatTheWholeGives) {
  // A product over rows of two dims, of which one is time, in either order.
  expect_streams(R"(program @p(%x: f32[2,T,3], %w: f32[3,4]) {
    %r = reshape %x : f32[2*T,3]
    %m = matmul %r, %w : f32[2*T,4]
    %y = reshape %m : f32[2,T,4]
    return %y
  })",
                 1);
  expect_streams(R"(program @p(%x: f32[T,2,3], %w: f32[3,4]) {
    %r = reshape %x : f32[2*T,3]
    %m = matmul %r, %w : f32[2*T,4]
    %y = reshape %m : f32[T,8]
    return %y
  })");
  // A loop over a sequence that begins with zeros: its first steps run before the first chunk.
  expect_streams(R"(program @p(%x: f32[T,2], %h: f32[2]) {
    %p = pad %x {dim = 0, low = 3, high = 0}
    %last, %ys = scan length T+3 carry(%c = %h) xs(%xt = %p) {
      %s = add %c, %xt
      %n = sin %s
      yield carry(%n) ys(%n)
    } : f32[2], f32[T+3,2]
    return %ys
  })",
                 0, 3);
  // A loop over a sequence that lacks its first steps: the loop waits for the missing ones.
  expect_streams(R"(program @p(%x: f32[T,2], %h: f32[2]) {
    %p = slice %x {dim = 0, start = 3, limit = dim(T)}
    %last, %ys = scan length T-3 carry(%c = %h) xs(%xt = %p) {
      %s = sub %c, %xt
      yield carry(%s) ys(%s)
    } : f32[2], f32[T-3,2]
    %z = pad %ys {dim = 0, low = 5, high = 0}
    %y = cos %z
    return %y, %last
  })",
                 0, 2);
  // Steps taken together, and taken apart again.
  expect_streams(R"(program @p(%x: f32[T,2]) {
    %p = pad %x {dim = 0, low = 0, high = dim(0-T+2*((T+1)//2))} : f32[2*((T+1)//2),2]
    %f = reshape %p : f32[(T+1)//2,2,2]
    %e = exp %f
    %y = reshape %e : f32[2*((T+1)//2),2]
    return %y, %f
  })");
  expect_streams(R"(program @p(%x: f32[2,T]) {
    %b = broadcast %x {dims = [0, 1]} : f32[2,T,3]
    %r = reshape %b : f32[2,3*T]
    %p = pad %r {dim = 1, low = 2, high = 0}
    %s = slice %p {dim = 1, start = 0, limit = dim(3*T)}
    %y = sub %r, %s
    return %y
  })",
                 1);
  // The first elements in reverse order before the sequence, and a loop that begins with one of them.
  expect_streams(R"(program @p(%x: f32[T,2]) {
    %f = slice %x {dim = 0, start = 1, limit = 3}
    %r = reverse %f {dim = 0}
    %y = concat %r, %x {dim = 0}
    %h = slice %x {dim = 0, start = 2, limit = 3}
    %c = reshape %h : f32[2]
    %last, %ys = scan length T+2 carry(%s = %c) xs(%yt = %y) {
      %n = sub %yt, %s
      yield carry(%n) ys(%n)
    } : f32[2], f32[T+2,2]
    return %ys, %y
  })",
                 0, 4);
  // Steps that are picked by known numbers, in a loop's step too.
  expect_streams(R"(program @p(%x: f32[T,2]) {
    %one = constant {value = 1} : i64[]
    %i = reshape %one : i64[1]
    %g = gather %x, %i
    %c = reshape %g : f32[2]
    %last, %ys = scan length T carry(%s = %c) xs(%xt = %x) {
      %a = slice %x {dim = 0, start = 0, limit = 1}
      %b = reshape %a : f32[2]
      %m = mul %xt, %b
      %n = add %s, %m
      yield carry(%n) ys(%n)
    } : f32[2], f32[T,2]
    return %ys
  })",
                 0, 1);
  // Numbers of steps, and what has the same number at each.
  expect_streams(R"(program @p(%x: f32[T,2], %table: f32[3,2]) {
    %i = iota {dim = 0} : i64[T]
    %three = constant {value = 3} : i64[T]
    %m = rem %i, %three
    %g = gather %table, %m
    %y = mul %x, %g
    return %y
  })");
}

TEST(Streaming, KeepsOneHistoryForAllReaders) {
  const Streamed streamed = stream(ir::parse(R"(program @p(%x: f32[T,2]) {
    %a = slice %x {dim = 0, start = 0, limit = dim(T-4)}
    %b = slice %x {dim = 0, start = 1, limit = dim(T-3)}
    %c = slice %x {dim = 0, start = 4, limit = dim(T)}
    %y = add %a, %c
    %z = add %b, %c
    return %y, %z
  })"),
                                   {0}, 0);
  ASSERT_EQ(streamed.states.size(), 2);  // and the number of steps so far: before the first element there are zeros
  EXPECT_EQ(streamed.step.type(streamed.step.body.args[0]), (Type{DType::kF32, {4, 2}}));
  EXPECT_EQ(streamed.step.type(streamed.step.body.args[1]), (Type{DType::kI64, {}}));
  EXPECT_EQ(streamed.outputs[0].lag, 4);
}

TEST(Streaming, KeepsAnElementAtAFixedPlace) {
  const Streamed streamed = stream(ir::parse(R"(program @p(%x: f32[T,2]) {
    %a = slice %x {dim = 0, start = 3, limit = 4}
    %r = reshape %a : f32[2]
    %b = broadcast %r {dims = [1]} : f32[T,2]
    %y = add %x, %b
    %z = mul %y, %b
    return %z, %r
  })"),
                                   {0}, 3);
  std::vector<std::string> types;
  for (size_t i = 0; i < streamed.states.size(); ++i)
    types.push_back(to_string(streamed.step.type(streamed.step.body.args[i])));
  std::ranges::sort(types);
  EXPECT_EQ(types, (std::vector<std::string>{"f32[2]", "f32[3,2]", "i64[]"}));
  EXPECT_EQ(streamed.outputs[0].lag, 3);
  EXPECT_FALSE(streamed.outputs[1].time_dim.has_value());
}

TEST(Streaming, TakesAsManyStepsAsStridesAskFor) {
  const Streamed streamed = stream(ir::parse(R"text(program @p(%x: f32[2,6,T], %w: f32[4,6,3]) {
    %a = extern %x, %w {call = "aten.convolution.default(%0, %1, None, [2], [2], [1], false, [0], 1)"} : f32[2,4,(T+1)//2+1]
    %b = extern %a {call = "aten.avg_pool2d.default(%0, [1, 3], [1, 3], [0, 0], false, true, None)"} : f32[2,4,((T+1)//2+1)//3]
    return %a, %b
})text"),
                                   {2}, 10);
  EXPECT_EQ(streamed.chunk, 6);
  EXPECT_EQ(streamed.outputs[0].per_chunk, 3);
  EXPECT_EQ(streamed.outputs[1].per_chunk, 1);
}

TEST(Streaming, RunningTotalsAreScans) {
  ir::Program program = ir::parse(R"text(program @p(%x: f32[2,T]) {
    %a = extern %x {call = "aten.cumsum.default(%0, -1, None)"} : f32[2,T]
    %b, %c = extern %x {call = "aten.cummin.default(%0, 1)"} : f32[2,T], i64[2,T]
    return %a, %b, %c
})text");
  running_totals(program);
  ir::verify(program);
  const std::vector<double> values{3, 1, 2, 1, -1, 4, -1, -2};
  const Array x = Array::of(DType::kF32, {2, 4}, values);
  const std::vector<Array> results = interpreter::evaluate(program, std::vector{x});
  EXPECT_EQ(results[0].to_doubles(), (std::vector<double>{3, 4, 6, 7, -1, 3, 2, 0}));
  EXPECT_EQ(results[1].to_doubles(), (std::vector<double>{3, 1, 1, 1, -1, -1, -1, -2}));
  EXPECT_EQ(results[2].to_doubles(), (std::vector<double>{0, 1, 1, 3, 0, 0, 2, 3}));
}

TEST(Streaming, RefusesWhatNeedsTheEnd) {
  EXPECT_EQ(refusal("program @p(%x: f32[T,2]) { %y = reduce_sum %x {dims = [0]} return %y }"),
            "reduce_sum over time (a mean, norm, softmax or attention over all steps) needs all steps of the sequence");
  EXPECT_EQ(refusal("program @p(%x: f32[T,2]) { %y = reverse %x {dim = 0} return %y }"),
            "reverse reverses the steps, which needs the sequence's end first");
  EXPECT_EQ(
      refusal("program @p(%x: f32[T,2]) { %y = slice %x {dim = 0, start = dim(T-2), limit = dim(T-1)} return %y }"),
      "slice begins at step T-2, counted from the end of the sequence");
  EXPECT_EQ(refusal("program @p(%x: f32[T,2]) { %y = slice %x {dim = 0, start = 0, limit = dim(T//2)} return %y }"),
            "slice takes a part of the sequence that depends on its length");
  EXPECT_EQ(refusal("program @p(%x: f32[T,2]) { %y = concat %x, %x {dim = 0} return %y }"),
            "concat puts one sequence behind another, which needs the first one's end");
  EXPECT_EQ(refusal("program @p(%x: f32[T,T]) { %y = neg %x return %y }", {0}),
            "input 0 is f32[T,T]: of its dims only the time may be a symbol");
  EXPECT_EQ(refusal("program @p(%x: f32[T]) { %y = broadcast %x {dims = [0]} : f32[T,T] return %y }"),
            "broadcast has all steps at each step, as attention has, which needs the whole sequence");
  EXPECT_EQ(refusal("program @p(%x: f32[T,2]) { %n = size {of = dim(T)} : f32[] return %n }"),
            "result 0 needs the number of steps, which a stream doesn't know");
  EXPECT_EQ(
      refusal("program @p(%x: f32[T,2], %i: i64[3]) { %y = gather %x, %i return %y }"),
      "gather picks steps by number, as `x[:, -2]` does: take `x[:, -1]`, or `x[:, k]` or a slice, counted from the "
      "beginning, or return all steps, and pick outside");
}

TEST(Streaming, RefusesLoopsThatNeedMoreThanTheirStep) {
  constexpr std::string_view kReverse = R"(program @p(%x: f32[T,2], %h: f32[2]) {
    %l, %y = scan reverse length T carry(%c = %h) xs(%xt = %x) { %n = add %c, %xt yield carry(%n) ys(%n) } : f32[2], f32[T,2]
    return %y
  })";
  EXPECT_EQ(refusal(kReverse),
            "scan goes from the sequence's end to its beginning, as a bidirectional layer's other half");
  constexpr std::string_view kReads = R"(program @p(%x: f32[T,2], %h: f32[2]) {
    %l, %y = scan length T carry(%c = %h) xs(%xt = %x) {
      %s = reduce_sum %x {dims = [0]}
      %n = add %c, %s
      yield carry(%n) ys(%n)
    } : f32[2], f32[T,2]
    return %y
  })";
  EXPECT_EQ(refusal(kReads),
            "reduce_sum over time (a mean, norm, softmax or attention over all steps) needs all steps of the sequence");
  constexpr std::string_view kLast = R"(program @p(%x: f32[T,2], %h: f32[2]) {
    %l = scan length T carry(%c = %h) xs(%xt = %x) { %n = add %c, %xt yield carry(%n) ys() } : f32[2]
    %b = broadcast %l {dims = [1]} : f32[T,2]
    return %b
  })";
  EXPECT_EQ(refusal(kLast), "broadcast reads a last step, or a loop's last carry, at steps before the last one");
}

TEST(Streaming, DelayIsAllowedOrNot) {
  constexpr std::string_view kAhead = R"(program @p(%x: f32[T,2]) {
    %p = pad %x {dim = 0, low = 0, high = 2}
    %s = slice %p {dim = 0, start = 2, limit = dim(T+2)}
    %y = add %x, %s
    return %y
  })";
  EXPECT_EQ(
      refusal(kAhead),
      "pad reads steps that are still to come: result 0 is complete 2 steps late. Pad on the left only, with zeros, "
      "or allow it with delay=2");
  EXPECT_EQ(refusal(kAhead, {0}, 1).substr(0, 9), "pad reads");
  const Streamed streamed = stream(ir::parse(kAhead), {0}, 2);
  EXPECT_EQ(streamed.outputs[0].lag, 2);
  EXPECT_THROW(stream(ir::parse(kAhead), {0}, -1), Error);
}

TEST(Streaming, KnowsTheRecordedOperation) {
  const ir::Program whole =
      ir::parse("program @p(%x: f32[T,2]) { %y = reverse %x {dim = 0, source.operation = 5} return %y }");
  try {
    stream(whole, {0}, 0);
    FAIL();
  } catch (const RefusedError& refused) {
    EXPECT_EQ(refused.operation, 5);
  }
}

// ---- random programs

/// Values [L,2,3], and the program that they are of.
class RandomSequences {
 public:
  explicit RandomSequences(unsigned seed) : random_(seed), builder_(program_, program_.body) {
    values_.push_back(builder_.input({DType::kF32, {Dim::symbol("T"), 2, 3}}));
    weight_ = builder_.input({DType::kF32, {3, 3}});
    start_ = builder_.input({DType::kF32, {2, 3}});
  }

  ir::Program make() {
    const int ops = 3 + below(8);
    for (int i = 0; i < ops; ++i) add();
    program_.body.results = {values_.back(), values_[static_cast<size_t>(below(static_cast<int>(values_.size())))]};
    return std::move(program_);
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  const Dim& length(ValueId value) const { return program_.type(value).shape[0]; }
  ValueId pad(ValueId x, const Dim& low, const Dim& high) {
    return builder_.emit(OpCode::kPad, {x},
                         {{"dim", int64_t{0}}, {"low", ir::as_attr(low)}, {"high", ir::as_attr(high)}});
  }

  void add() {
    const ValueId x = values_[static_cast<size_t>(below(static_cast<int>(values_.size())))];
    const Dim size = length(x);
    switch (below(13)) {
      case 10: {  // an element at a fixed place, at all steps
        const ValueId all = builder_.broadcast(fixed(x), {size, 2, 3}, {1, 2});
        return keep(builder_.binary(below(2) == 0 ? OpCode::kSub : OpCode::kMul, x, all));
      }
      case 11: {  // elements at fixed places in front
        const int64_t first = below(4), count = 1 + below(3);
        ValueId front = builder_.slice(x, 0, first, first + count);
        if (below(2) == 0) front = builder_.emit(OpCode::kReverse, {front}, {{"dim", int64_t{0}}});
        return keep(builder_.concat({front, x}, 0));
      }
      case 12: {  // an initial carry that follows from an element
        const auto results = builder_.scan({fixed(x)}, {x}, size, false, [&](Builder& body, auto carries, auto xs) {
          const ValueId next = body.unary(OpCode::kSin, body.add(body.matmul(carries[0], weight_), xs[0]));
          return Builder::StepResults{{next}, {next}};
        });
        return keep(results[1]);
      }
      case 0:
        return keep(builder_.unary(OpCode::kSin, x));
      case 1:
        return keep(pad(x, below(4), below(3)));
      case 2: {
        const int64_t start = below(3);
        return keep(builder_.slice(x, 0, start, size - Dim(below(2))));
      }
      case 3:
      case 4: {
        for (ValueId other : values_)
          if (length(other) == size && other != x)
            return keep(builder_.binary(below(2) == 0 ? OpCode::kAdd : OpCode::kMul, x, other));
        return;
      }
      case 5: {
        const ValueId rows = builder_.reshape(x, {Dim(2) * size, 3});
        return keep(builder_.reshape(builder_.matmul(rows, weight_), {size, 2, 3}));
      }
      case 6: {
        const auto results = builder_.scan({start_}, {x}, size, false, [&](Builder& body, auto carries, auto xs) {
          const ValueId next = body.unary(OpCode::kSin, body.add(body.matmul(carries[0], weight_), xs[0]));
          return Builder::StepResults{{next}, {body.add(next, carries[0])}};
        });
        return keep(results[1]);
      }
      case 7: {  // steps two by two, of which the sum stays
        const Dim half = floor_divide(size + Dim(1), 2);
        const ValueId frames = builder_.reshape(pad(x, 0, Dim(2) * half - size), {half, 2, 2, 3});
        return keep(builder_.reduce_sum(frames, {1}));
      }
      case 8: {  // each step twice
        const ValueId twice = builder_.broadcast(x, {size, 2, 2, 3}, {0, 2, 3});
        return keep(builder_.reshape(twice, {Dim(2) * size, 2, 3}));
      }
      default: {
        const ValueId front = builder_.broadcast(start_, {1 + below(3), 2, 3}, {1, 2});
        return keep(builder_.concat({front, x}, 0));
      }
    }
  }

  ValueId fixed(ValueId x) {
    const int64_t place = below(5);
    return builder_.unary(OpCode::kTanh, builder_.reshape(builder_.slice(x, 0, place, place + 1), {2, 3}));
  }

  void keep(ValueId value) {
    if (program_.type(value).shape[0].degree() <= 1) values_.push_back(value);
  }

  std::mt19937 random_;
  ir::Program program_;
  Builder builder_;
  std::vector<ValueId> values_;
  ValueId weight_, start_;
};

TEST(StreamingRandom, ChunksGiveTheWhole) {
  int64_t compared = 0;
  int streamed = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const ir::Program whole = RandomSequences(seed).make();
    ir::verify(whole);
    try {
      for (int64_t each : expect_chunks_give_the_whole(whole, {0}, 1000, 12, seed)) compared += each;
      ++streamed;
    } catch (const RefusedError& refused) {
      ADD_FAILURE() << refused.what();
    } catch (const Error& error) {  // so many chunks are too few for the program's sizes
      const std::string what = error.what();
      EXPECT_TRUE(what.find("negative") != std::string::npos || what.find("slice") != std::string::npos) << what;
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(streamed, 300);
  EXPECT_GT(compared, 4000);
}

/// Whatever a program does with its time, it is refused or streamed rightly.
TEST(StreamingRandom, AnyProgramIsRefusedOrRight) {
  int streamed = 0;
  int64_t compared = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    const testing::RandomOptions options{.ops = 1 + static_cast<int>(seed % 7), .symbolic_bounds = seed % 2 == 0};
    const std::string text = ir::print(testing::random_program(seed, options));
    const ir::Program whole = ir::parse(std::regex_replace(text, std::regex("\\bB\\b"), "3"));
    Dims dims;
    for (ValueId input : whole.body.args) {
      const ir::Shape& shape = whole.type(input).shape;
      const auto found = std::ranges::find(shape, Dim::symbol("T"));
      dims.push_back(found == shape.end() ? std::nullopt : std::optional<size_t>(found - shape.begin()));
    }
    try {
      for (int64_t each : expect_chunks_give_the_whole(whole, dims, 100, 4, seed)) compared += each;
      ++streamed;
    } catch (const Error&) {  // an internal error is none
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(streamed, 20);
  EXPECT_GT(compared, 50);
}

}  // namespace
}  // namespace weft::streaming::streaming_test
