// Nothing is allocated inside a parallel region: a run allocates its memory before, since an exception inside ends the
// process. Not under ThreadSanitizer, whose `new` cannot be replaced.
#ifndef WEFT_THREAD_SANITIZER

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/settings.h"
#include "engine/engine.h"
#include "ir/text/printer.h"
#include "native_run.h"
#include "programs.h"
#include "random_program.h"
#include "wide_step.h"

namespace {

thread_local bool refuses_memory = false;

}  // namespace

// For the whole test program: `new` fails on a thread that asks for it.
void* operator new(std::size_t bytes) {
  if (refuses_memory) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
// A sanitizer's own version wouldn't call the one above, and frees nothing of it.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return refuses_memory ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
// Not inline: g++ warns of `free` of memory from `new`.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace weft::allocation_test {
namespace {

using interpreter::Array;

/// Three threads, whose members get no memory.
class PoorTeam : public runtime::Team {
 public:
  int64_t size() const override { return 3; }
  void run(const std::function<void(int64_t, int64_t)>& member) override {
    runtime::own_team(3).run([&](int64_t thread, int64_t threads) {
      refuses_memory = true;
      member(thread, threads);
      refuses_memory = false;
    });
  }
};

class Allocation : public ::testing::Test {
 protected:
  Allocation() { mutable_settings().share_all = true; }
  ~Allocation() override { mutable_settings().share_all = false; }
};

TEST_F(Allocation, StepsNeedNone) {
  PoorTeam poor;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const bool ragged = seed % 3 == 1;
    const std::string text = ir::print(
        testing::random_wide_step(seed, {.products = seed % 2 == 0, .ragged = ragged, .nested = seed % 3 == 2}));
    const ir::Bindings bindings = {{"T", 9}, {"B", 3}, {"N", 20}};
    const auto inputs = testing::random_inputs(engine::compile(text)->program(), bindings, seed);
    const auto expected = testing::run_native(text, inputs, bindings, runtime::own_team(3));
    const auto found = testing::run_native(text, inputs, bindings, poor);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(std::memcmp(found[i].bytes.data(), expected[i].bytes.data(), expected[i].bytes.size()), 0) << text;
  }
}

TEST_F(Allocation, AFailureWithoutMemoryForItsMessageIsOutOfMemory) {
  PoorTeam poor;
  const std::string text = testing::program_text("packed_gru");
  const ir::Bindings bindings = {{"T", 4}, {"B", 3}, {"N", 8}};
  auto inputs = testing::random_inputs(engine::compile(text)->program(), bindings, 1);
  inputs[1] = Array::of(DType::kI64, {4}, std::vector<double>{3, 1, 3, 1});  // more rows after fewer
  EXPECT_THROW(testing::run_native(text, inputs, bindings, poor), std::bad_alloc);
  EXPECT_NE(testing::error_of([&] {
              testing::run_native(text, inputs, bindings, runtime::own_team(3));
            }).find("batch_sizes must not increase"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::allocation_test

#endif
