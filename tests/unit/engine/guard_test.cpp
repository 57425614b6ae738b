// Nothing is read or written past an end: with every input, output and buffer between pages that fault, at sizes that
// are no multiple of anything.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <regex>

#include "base/settings.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "native_run.h"
#include "programs.h"
#include "random_program.h"
#include "runtime/memory/guarded_memory.h"
#include "runtime/plan/executable.h"

namespace weft::guard_test {
namespace {

using interpreter::Array;
using runtime::GuardedMemory;

constexpr int64_t kOdd[] = {1, 3, 7, 17, 33};

/// Guards runs, and makes threads share the smallest work, for as long as it lives.
class Guard : public ::testing::Test {
 protected:
  Guard() : guard_(settings().guard) {
    mutable_settings().guard = true;
    mutable_settings().share_all = true;
  }
  ~Guard() override {
    mutable_settings().guard = guard_;
    mutable_settings().share_all = false;
    mutable_settings().window = -1;
  }

 private:
  bool guard_;
};

TEST_F(Guard, MemoryFaultsOnBothSides) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // threads of other tests' teams may be there
  for (auto side : {GuardedMemory::Side::kEnd, GuardedMemory::Side::kStart})
    for (int64_t bytes : {1, 100, 4096, 5000}) {
      GuardedMemory memory(bytes, side);
      memory.data()[0] = memory.data()[bytes - 1] = std::byte{1};
      EXPECT_TRUE(memory.is_intact());
      volatile const std::byte* data = memory.data();
      if (side == GuardedMemory::Side::kEnd) {
        EXPECT_DEATH(static_cast<void>(data[bytes]), "") << bytes;
      }
      if (side == GuardedMemory::Side::kStart) {
        EXPECT_DEATH(static_cast<void>(data[-1]), "") << bytes;
      }
      memory.make_read_only();
      EXPECT_DEATH(memory.data()[0] = std::byte{2}, "") << bytes;
    }
}

TEST_F(Guard, MemoryKnowsWhatIsWrittenBesideIt) {
  GuardedMemory before(100, GuardedMemory::Side::kEnd), behind(100, GuardedMemory::Side::kStart);
  EXPECT_EQ(before.data()[0], GuardedMemory::kCanary);
  before.data()[-1] = std::byte{1};
  behind.data()[100] = std::byte{1};
  EXPECT_FALSE(before.is_intact());
  EXPECT_FALSE(behind.is_intact());
}

/// One float past each of the two instances of the plan's only buffer, or right before it.
template <int64_t kOffset>
void write_astray(void* const* buffers, const int64_t*, void*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) {
  static_cast<float*>(buffers[0])[kOffset] = 1;
}

TEST_F(Guard, ABufferWrittenBesideIsNamed) {
  auto error_of_run = [](runtime::StageFunction function) {
    runtime::Plan plan;
    plan.buffers.push_back({.name = "sums", .elements = {5, {}}, .copies = 2});
    plan.stages.emplace_back();
    plan.stage_count = 1;
    runtime::SerialTeam team;
    try {
      runtime::NativeProgram(std::move(plan), {.functions = {function}, .callbacks = {}}).run({}, {}, {}, team);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of_run(write_astray<4>), "no error");
  EXPECT_EQ(error_of_run(write_astray<16>), "no error");
  EXPECT_NE(error_of_run(write_astray<5>).find("wrote past the 20 bytes of the buffer 'sums'"), std::string::npos);
  EXPECT_NE(error_of_run(write_astray<21>).find("wrote past the 20 bytes of the buffer 'sums'"), std::string::npos);
  EXPECT_NE(error_of_run(write_astray<-1>).find("wrote beside the buffer 'sums' of 128 bytes"), std::string::npos);
}

/// The program of tests/golden/programs with `width` units where it has 16, on inputs of as many columns.
std::string of_width(const std::string& name, int64_t width, const std::string& dtype) {
  std::string text = std::regex_replace(testing::program_text(name), std::regex("//[^\n]*"), "");
  static const std::regex number("([\\[,] ?|(?:limit|start) = )(8|16|32|48|64)\\b");
  std::string result;
  auto end = std::sregex_iterator();
  auto last = text.cbegin();
  for (auto match = std::sregex_iterator(text.begin(), text.end(), number); match != end; ++match) {
    int64_t value = std::stoll((*match)[2]);
    result.append(last, (*match)[0].first);
    result += (*match)[1].str() + std::to_string(value == 8 ? width : value / 16 * width);
    last = (*match)[0].second;
  }
  result.append(last, text.cend());
  return std::regex_replace(result, std::regex("f32"), dtype);
}

struct Cell {
  const char *name, *dtype;
  double tolerance;
};

class GuardCells : public Guard, public ::testing::WithParamInterface<Cell> {
 protected:
  /// Small runs are compared with the interpreter as well; run_native compares both sides of every run.
  static void run(const ir::Program& program, int64_t work, double tolerance) {
    constexpr int64_t kWorthComparing = 2000;
    for (int64_t length : kOdd)
      for (int64_t batch : kOdd) {
        ir::Bindings bindings{{"T", length}, {"B", batch}, {"N", length * batch}};
        std::vector<Array> inputs = testing::random_inputs(program, bindings, 3);
        for (Array& input : inputs) {  // small weights: with large ones a recurrence is chaotic and compares nothing
          std::vector<double> values = input.to_doubles();
          for (double& value : values) value *= 0.2;
          input = Array::of(input.dtype, input.sizes, values);
        }
        auto& team = runtime::own_team(1 + (length + batch) / 2 % 3);
        mutable_settings().window = length / 2 % 4 - 1;
        std::vector<Array> got = testing::run_native(ir::print(program), inputs, bindings, team);
        if (length * batch * work > kWorthComparing) continue;
        EXPECT_LE(testing::difference(got, interpreter::evaluate(program, inputs)), tolerance)
            << "T " << length << " B " << batch << "\n"
            << ir::print(program);
      }
  }
};

TEST_P(GuardCells, ForwardAndBackwardStayInside) {
  auto [name, dtype, tolerance] = GetParam();
  for (int64_t width : kOdd) {
    ir::Program program = ir::parse(of_width(name, width, dtype));
    run(program, width, tolerance);
    run(passes::vjp_of_primals(program, testing::floating_inputs(program)), 3 * width, 10 * tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GuardCells,
                         ::testing::Values(Cell{"gru", "f32", 1e-4}, Cell{"lstm", "f32", 1e-4},
                                           Cell{"lstm", "f64", 1e-10}, Cell{"gru", "bf16", 5e-2}),
                         [](const auto& test) { return std::string(test.param.name) + "_" + test.param.dtype; });

}  // namespace
}  // namespace weft::guard_test
