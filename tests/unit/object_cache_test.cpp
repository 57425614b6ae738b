// Objects on disk: used again, rebuilt when damaged or foreign, done without when the directory fails.
#include "jit/object_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/settings.h"
#include "engine/engine.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class ObjectCache : public testing::Test {
 protected:
  void SetUp() override {
    before_ = settings().cache_dir;
    std::string pattern = (fs::temp_directory_path() / "weft-cache-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    mutable_settings().cache_dir = (directory_ / "weft").string();
  }
  void TearDown() override {
    mutable_settings().cache_dir = before_;
    fs::remove_all(directory_);
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(settings().cache_dir))
      for (const auto& entry : fs::directory_iterator(settings().cache_dir)) found.push_back(entry.path());
    return found;
  }

  /// Compiles a program that differs from the others of this test only in a comment, runs it, and says whether its
  /// object came from the disk.
  bool compile_from_disk() {
    static int serial = 0;
    int64_t hits = engine::stats().object_cache_hits;
    auto executable = engine::compile(fmt::format(
        "// {}\nprogram @cached(%x: f32[N]) {{ %a = mul %x, %x : f32[N] %b = add %a, %x : f32[N] return %b }}",
        serial++));
    std::vector<float> x{1, 2, 3}, y(3);
    std::vector<int64_t> sizes{3};
    runtime::TensorRef in{x.data(), DType::kF32, sizes}, out{y.data(), DType::kF32, sizes};
    runtime::SerialTeam team;
    executable->run({&in, 1}, {&out, 1}, team);
    EXPECT_EQ(y, (std::vector<float>{2, 6, 12}));
    return engine::stats().object_cache_hits > hits;
  }

  fs::path directory_;
  std::string before_;
};

TEST_F(ObjectCache, IsUsedAgainAndPrivate) {
  EXPECT_FALSE(compile_from_disk());
  ASSERT_EQ(files().size(), 1u);
  struct stat info{};
  ASSERT_EQ(::stat(files()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(compile_from_disk());
}

TEST_F(ObjectCache, RebuildsADamagedObject) {
  compile_from_disk();
  fs::path file = files().at(0);
  auto size = fs::file_size(file);
  for (auto damage : {size / 2, size - 1, uintmax_t{3}, uintmax_t{0}}) {
    fs::resize_file(file, damage);
    EXPECT_FALSE(compile_from_disk()) << damage;
    EXPECT_EQ(fs::file_size(file), size);
    EXPECT_TRUE(compile_from_disk());
  }
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(static_cast<long>(size) - 100) << "damage";
  EXPECT_FALSE(compile_from_disk());
}

TEST_F(ObjectCache, IgnoresAFileThatOthersMayWrite) {
  compile_from_disk();
  fs::permissions(files().at(0), fs::perms::group_write, fs::perm_options::add);
  EXPECT_FALSE(compile_from_disk());
}

TEST_F(ObjectCache, DoesWithoutADirectory) {
  mutable_settings().cache_dir = "/proc/no/such/place";
  EXPECT_FALSE(compile_from_disk());
  std::ofstream(directory_ / "file") << "not a directory";
  mutable_settings().cache_dir = (directory_ / "file" / "weft").string();
  EXPECT_FALSE(compile_from_disk());
}

TEST_F(ObjectCache, LeavesNothingBehindWhenTheDiskIsFull) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{100, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  bool from_disk = compile_from_disk();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(from_disk);
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace weft
