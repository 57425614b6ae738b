// Stacks stored past the caches: which may be, when they are, and that the results are the same.

#include "runtime/memory/streams.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/settings.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "lowered.h"
#include "machine.h"
#include "native_run.h"
#include "programs.h"
#include "random_program.h"

namespace weft::streams_test {
namespace {

struct Program {
  const char* name;
  size_t streamed;  ///< how many ys of its scan are streamed
  const char* text;
};

// The ops behind the scan read its stacks in another order, so they are the engine's own memory.
const Program kPrograms[] = {
    {"what_a_backward_reads", 3, R"(program @p(%h0: f32[B,32], %x: f32[T,B,32], %w: f32[32,32]) {
       %hT, %hs, %rs, %ns = scan length T carry(%h = %h0) xs(%xt = %x) {
         %r = matmul %h, %w {transpose_b = true} : f32[B,32]
         %a = add %r, %xt : f32[B,32]
         %n = tanh %a : f32[B,32]
         %g = mul %n, %h : f32[B,32]
         yield carry(%n) ys(%n, %r, %g)
       } : f32[B,32], f32[T,B,32], f32[T,B,32], f32[T,B,32]
       %p = matmul %hs, %w : f32[T,B,32]
       %q = matmul %rs, %w : f32[T,B,32]
       %s = matmul %ns, %w : f32[T,B,32]
       return %hT, %p, %q, %s })"},
    {"backwards_f64", 2, R"(program @p(%h0: f64[B,24], %x: f64[T,B,24], %w: f64[24,24]) {
       %hT, %hs, %as = scan reverse length T carry(%h = %h0) xs(%xt = %x) {
         %a = add %h, %xt : f64[B,24]
         %n = tanh %a : f64[B,24]
         yield carry(%n) ys(%n, %a)
       } : f64[B,24], f64[T,B,24], f64[T,B,24]
       %p = matmul %hs, %w : f64[T,B,24]
       %q = matmul %as, %w : f64[T,B,24]
       return %hT, %p, %q })"},
    {"one_that_the_step_multiplies", 1, R"(program @p(%h0: f32[B,32], %x: f32[T,B,32], %w: f32[32,32]) {
       %hT, %as, %ms = scan length T carry(%h = %h0) xs(%xt = %x) {
         %a = add %h, %xt : f32[B,32]
         %m = matmul %a, %w : f32[B,32]
         %n = tanh %m : f32[B,32]
         yield carry(%n) ys(%a, %m)
       } : f32[B,32], f32[T,B,32], f32[T,B,32]
       %p = matmul %as, %w : f32[T,B,32]
       %q = matmul %ms, %w : f32[T,B,32]
       return %hT, %p, %q })"},
    {"rows_that_are_no_whole_lines", 0, R"(program @p(%h0: f32[B,20], %x: f32[T,B,20], %w: f32[20,20]) {
       %hT, %hs = scan length T carry(%h = %h0) xs(%xt = %x) {
         %a = add %h, %xt : f32[B,20]
         %n = tanh %a : f32[B,20]
         yield carry(%n) ys(%n)
       } : f32[B,20], f32[T,B,20]
       %p = matmul %hs, %w : f32[T,B,20]
       return %hT, %p })"},
    {"one_number_a_row", 1, R"(program @p(%h0: f32[B,32], %x: f32[T,B,32], %w: f32[32,32]) {
       %hT, %hs, %ss = scan length T carry(%h = %h0) xs(%xt = %x) {
         %a = add %h, %xt : f32[B,32]
         %n = tanh %a : f32[B,32]
         %s = reduce_sum %xt {dims = [1]} : f32[B]
         yield carry(%n) ys(%n, %s)
       } : f32[B,32], f32[T,B,32], f32[T,B]
       %p = matmul %hs, %w : f32[T,B,32]
       return %hT, %p, %ss })"},
    {"packed", 2, R"(program @p(%h0: f32[B,32], %x: f32[N,32], %sizes: i64[T], %w: f32[32,32]) {
       %hT, %hs, %as = scan length T ragged(%sizes, B, N) carry(%h = %h0) xs(%xt = %x) {
         %r = matmul %h, %w {transpose_b = true} : f32[B,32]
         %a = add %r, %xt : f32[B,32]
         %n = tanh %a : f32[B,32]
         yield carry(%n) ys(%n, %a)
       } : f32[B,32], f32[N,32], f32[N,32]
       %p = matmul %hs, %w : f32[N,32]
       %q = matmul %as, %w : f32[N,32]
       return %hT, %p, %q })"},
};

std::ostream& operator<<(std::ostream& out, const Program& program) { return out << program.text; }

class Streams : public ::testing::TestWithParam<Program> {
 protected:
  ~Streams() override {
    mutable_settings().stream = -1;
    mutable_settings().share_all = mutable_settings().delays = false;
  }
};

TEST_P(Streams, AreOfYsThatNoStageOfTheStepReads) {
  const testing::Lowered lowered(GetParam().text);
  ASSERT_EQ(lowered.schedule.scans.size(), 1u);
  EXPECT_EQ(lowered.schedule.scans.begin()->second.streamed.size(), GetParam().streamed);
}

TEST_P(Streams, GiveTheSameBitsPastTheCachesAndThrough) {
  const ir::Program program = ir::parse(GetParam().text);
  for (int64_t batch : {0, 1, 7})
    for (int64_t length : {1, 2, 9}) {
      const int64_t packed = (batch * length + batch + length - 1) / 2;  // some end before the last step
      const ir::Bindings bindings{{"T", length}, {"B", batch}, {"N", packed}};
      if (batch == 0 && std::string(GetParam().name) == "packed") continue;  // there are no empty ones
      const std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 3);
      const std::vector<interpreter::Array> expected = interpreter::evaluate(program, inputs);
      auto run = [&](int64_t stream, int64_t threads, bool delays) {
        mutable_settings().stream = stream;
        mutable_settings().share_all = threads > 1;
        mutable_settings().delays = delays;
        return testing::run_native(GetParam().text, inputs, bindings, runtime::own_team(threads));
      };
      const auto through = run(0, 1, false);
      EXPECT_LE(testing::difference(through, expected), 1e-4) << "T " << length << ", B " << batch;
      for (int64_t threads : {1, 3, 7}) {
        const auto past = run(1, threads, threads == 3);
        for (size_t i = 0; i < past.size(); ++i)
          EXPECT_EQ(past[i].bytes, through[i].bytes)
              << "result " << i << ", T " << length << ", B " << batch << ", " << threads << " threads";
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Streams, ::testing::ValuesIn(kPrograms),
                         [](const auto& test) { return test.param.name; });

TEST(StreamsPay, WhereManyStacksLeaveTheCoresCache) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const int64_t own = machine.private_cache(), shared = machine.shared_cache();
    EXPECT_EQ(weft_streams(own / 2, own / 2, 7, 0), 0);
    EXPECT_EQ(weft_streams(own * 3, own * 3, 7, 0), 1);
    EXPECT_EQ(weft_streams(own * 3 * 7, own * 3, 7, 0), 1) << "of seven threads";
    EXPECT_EQ(weft_streams(own * 3 * 7, own / 2, 7, 0), 0) << "each thread's rows stay in its cache";
    EXPECT_EQ(weft_streams(own * 3, own * 3, 2, 0), own * 3 > shared / 2 ? 1 : 0) << "few stacks, read at once maybe";
  });
}

TEST(StreamsPay, WhereStacksLeaveTheSharedCache) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const int64_t bytes = machine.private_cache() + machine.shared_cache();
    EXPECT_EQ(weft_streams(bytes, bytes, 1, 0), 1);
    EXPECT_EQ(weft_streams(bytes, bytes, 1, 64 * 5), 1);
    EXPECT_EQ(weft_streams(bytes, bytes, 1, 64 * 5 + 4), 0) << "not whole cache lines";
  });
}

TEST(StreamsPay, WhereTheSettingSaysSo) {
  mutable_settings().stream = 1;
  EXPECT_EQ(weft_streams(64, 64, 1, 0), 1);
  EXPECT_EQ(weft_streams(64, 64, 1, 32), 0) << "the processor could not";
  mutable_settings().stream = 0;
  EXPECT_EQ(weft_streams(int64_t{1} << 40, int64_t{1} << 40, 9, 0), 0);
  mutable_settings().stream = -1;
}

}  // namespace
}  // namespace weft::streams_test
