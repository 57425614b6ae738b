// Whole programs on disk: the same plan and code again, a key of everything that these depend on, and a check that
// finds what a key lacks.
#include "engine/program_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "base/build_id.h"
#include "base/error.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "ir/text/parser.h"
#include "jit/object_cache.h"
#include "planning/cpu/cpu_target.h"
#include "programs.h"

namespace weft::engine::program_cache_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kText =
    "program @cached(%x: f32[N]) { %a = mul %x, %x : f32[N] %b = add %a, %x : f32[N] return %b }";

class ProgramCache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "weft-programs-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    mutable_settings().cache_dir = pattern;
    mutable_settings().verify = false;
  }
  void TearDown() override {
    fs::remove_all(settings().cache_dir);
    mutable_settings() = before_;
  }

  static std::vector<fs::path> programs() {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(settings().cache_dir))
      if (entry.path().extension() == ".p") found.push_back(entry.path());
    return found;
  }

  static std::string key() { return program_key(ir::parse(kText), planning::CpuTarget()); }

  /// Runs kText on [1, 2, 3], and says whether it came from the disk.
  static bool is_from_disk() {
    const int64_t hits = stats().object_cache_hits;
    const auto executable = compile(kText);
    std::vector<float> x{1, 2, 3}, y(3);
    std::vector<int64_t> sizes{3};
    runtime::TensorRef in{x.data(), DType::kF32, sizes}, out{y.data(), DType::kF32, sizes};
    runtime::SerialTeam team;
    executable->run({&in, 1}, {&out, 1}, team);
    EXPECT_EQ(y, (std::vector<float>{2, 6, 12}));
    return stats().object_cache_hits > hits;
  }

 private:
  Settings before_ = settings();
};

TEST_F(ProgramCache, NeedsNoObjectsOfModules) {
  EXPECT_FALSE(is_from_disk());
  ASSERT_EQ(programs().size(), 1u);
  for (const auto& entry : fs::directory_iterator(settings().cache_dir))
    if (entry.path().extension() == ".o") fs::remove(entry.path());
  EXPECT_TRUE(is_from_disk());
}

TEST_F(ProgramCache, GivesThePlanThatWasStored) {
  for (const char* name : {"gru", "lstm"}) {
    const std::string text = testing::program_text(name);
    const std::string plan = compile(text)->plan_text();
    EXPECT_EQ(compile(text)->plan_text(), plan);
  }
}

TEST_F(ProgramCache, IgnoresADamagedFile) {
  EXPECT_FALSE(is_from_disk());
  const fs::path file = programs().at(0);
  const auto size = fs::file_size(file);
  for (const auto damage : {size / 2, size - 1, uintmax_t{3}, uintmax_t{0}}) {
    fs::resize_file(file, damage);
    EXPECT_TRUE(is_from_disk());  // by the object of its module
    EXPECT_EQ(fs::file_size(file), size);
  }
  // Files with a right checksum whose contents are no stored program.
  for (const char* bytes : {"", "12", "x 3", "99999 {}", "0 7 short", "3 {}{9 x"}) {
    jit::store_object(key(), bytes, jit::Stored::kProgram);
    EXPECT_FALSE(load_program(key())) << bytes;
    EXPECT_TRUE(is_from_disk()) << bytes;
  }
}

TEST_F(ProgramCache, DoesNotKeepWhatCallsBack) {
  compile(
      "program @sorted(%x: i64[N]) { %n = neg %x : i64[N] %s = extern %n {call = \"aten.sort\"} : i64[N] return %s }");
  EXPECT_TRUE(programs().empty());
}

TEST_F(ProgramCache, HasAKeyOfEverySettingThatPlansDependOn) {
  const std::vector<std::function<void(Settings&)>> changes = {
      [](Settings& s) { s.disabled = {"hoist"}; },
      [](Settings& s) { s.private_cache_bytes = 12345; },
      [](Settings& s) { s.shared_cache_bytes = 12345; },
      [](Settings& s) { s.core = "zen1"; },
      [](Settings& s) { s.isa = "generic"; },
      [](Settings& s) { s.pack = "never"; },
      [](Settings& s) { s.window = 3; },
      [](Settings& s) { s.side_by_side = 1; },
      [](Settings& s) { s.stream = 1; },
      [](Settings& s) { s.delays = true; },
      [](Settings& s) { s.guard = true; },
      [](Settings& s) { s.share_all = true; },
      [](Settings& s) { s.contention = 1; },
  };
  std::set<std::string> keys{key()};
  const Settings before = settings();
  for (const auto& change : changes) {
    change(mutable_settings());
    keys.insert(key());
    mutable_settings() = before;
  }
  EXPECT_EQ(keys.size(), changes.size() + 1);
  EXPECT_EQ(keys.count(key()), 1u);
}

TEST_F(ProgramCache, HasNoKeyWhereSomebodyWatchesThePasses) {
  mutable_settings().time_passes = true;
  EXPECT_EQ(key(), "");
  mutable_settings().time_passes = false;
  mutable_settings().dump = settings().cache_dir + "/dump";
  EXPECT_EQ(key(), "");
}

TEST_F(ProgramCache, IsCheckedWhereProgramsAreVerified) {
  compile(kText);
  auto stored = load_program(key());
  ASSERT_TRUE(stored);
  EXPECT_FALSE(stored->objects.empty());
  stored->plan.work.push_back(stored->plan.stages.at(0).rows);  // as if the plan depended on what the key lacks
  store_program(key(), stored->plan, stored->objects);
  mutable_settings().verify = true;
  EXPECT_THROW(compile(kText), InternalError);
}

TEST(BuildId, IsThatOfThisBinary) { EXPECT_GE(build_id().size(), 16u); }

}  // namespace
}  // namespace weft::engine::program_cache_test
