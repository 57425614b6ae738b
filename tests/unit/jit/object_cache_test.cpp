// Objects on disk: used again, rebuilt when damaged or foreign, and done without when the directory fails.
#include "jit/object_cache.h"

#include <fcntl.h>
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

namespace weft::object_cache_test {
namespace {

namespace fs = std::filesystem;

class ObjectCache : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = settings().cache_dir;
    std::string pattern = (fs::temp_directory_path() / "weft-cache-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    mutable_settings().cache_dir = (directory_ / "weft").string();
    mutable_settings().verify = true;  // else programs are found whole (program_cache_test.cpp)
  }
  void TearDown() override {
    mutable_settings().cache_dir = before_;
    mutable_settings().cache_bytes = bytes_before_;
    mutable_settings().verify = verify_before_;
    fs::remove_all(directory_);
  }

  /// The files of the folder, but for those of whole programs.
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(settings().cache_dir))
      for (const auto& entry : fs::directory_iterator(settings().cache_dir))
        if (entry.path().extension() != ".p") found.push_back(entry.path());
    return found;
  }

  /// Compiles x * x + x, runs it, and says whether its objects came from the disk.
  static bool compile_from_disk() {
    return compile_from_disk(
        "program @cached(%x: f32[N]) { %a = mul %x, %x : f32[N] %b = add %a, %x : f32[N] return %b }", {2, 6, 12});
  }

  /// The same with a program that maps [1, 2, 3] to `want`, and that differs at least in a comment from those before.
  static bool compile_from_disk(const std::string& text, const std::vector<float>& want) {
    static int serial = 0;
    int64_t hits = engine::stats().object_cache_hits;
    auto executable = engine::compile(fmt::format("// {}\n{}", serial++, text));
    std::vector<float> x{1, 2, 3}, y(want.size());
    std::vector<int64_t> sizes{3}, out_sizes{std::ssize(y)};
    runtime::TensorRef in{x.data(), DType::kF32, sizes}, out{y.data(), DType::kF32, out_sizes};
    runtime::SerialTeam team;
    executable->run({&in, 1}, {&out, 1}, team);
    EXPECT_EQ(y, want);
    return engine::stats().object_cache_hits > hits;
  }

  static mode_t mode_of(const fs::path& path) {
    struct stat info{};
    EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  /// Expects a compilation with `what` in the place of the object: nothing may be read from it, wait for it, or fail
  /// because of it.
  void expect_compiled(const std::string& what) {
    EXPECT_FALSE(compile_from_disk()) << what;
    EXPECT_EQ(::access((directory_ / "elsewhere").c_str(), F_OK), -1) << what << " was followed";
  }

  /// An empty private folder in place of the cache's.
  fs::path fresh_folder() {
    fs::remove_all(settings().cache_dir);
    fs::create_directory(settings().cache_dir);
    fs::permissions(settings().cache_dir, fs::perms::owner_all);
    return settings().cache_dir;
  }

  fs::path directory_;
  std::string before_;
  int64_t bytes_before_ = settings().cache_bytes;
  bool verify_before_ = settings().verify;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// What LLVM knows of the target is kept from module to module (jit::machine_of).
TEST_F(ObjectCache, AModuleHasTheSameCodeWhateverWasCompiledBefore) {
  const std::string text = "program @first(%x: f32[N]) { %a = tanh %x : f32[N] return %a }";
  std::string first;
  for (int turn = 0; turn < 3; ++turn) {
    fresh_folder();
    engine::compile(text);
    ASSERT_EQ(files().size(), 1U);
    const std::string bytes = bytes_of(files()[0]);
    if (turn == 0) first = bytes;
    EXPECT_EQ(bytes, first);
    for (const char* other : {"exp", "sigmoid", "sqrt", "log"})
      engine::compile(fmt::format("program @other(%x: f64[N, M]) {{ %a = {} %x : f64[N, M] return %a }}", other));
  }
}

TEST_F(ObjectCache, IsUsedAgainAndPrivate) {
  EXPECT_FALSE(compile_from_disk());
  ASSERT_EQ(files().size(), 1u);
  struct stat info{};
  ASSERT_EQ(::stat(files()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(compile_from_disk());
}

TEST_F(ObjectCache, KeepsTheObjectsOfALargeProgramOneByOne) {
  // Two domains, each with much to compile.
  std::string ops = "%a0 = sub %x, %x : f32[N] %b0 = concat %x, %x {dim = 0} : f32[2*N] %c0 = sub %b0, %b0 : f32[2*N] ";
  for (int i = 0; i < 30; ++i)
    for (const char* chain : {"a", "c"})
      ops += fmt::format("%{0}{1} = tanh %{0}{2} : f32[{3}N]\n", chain, i + 1, i, *chain == 'a' ? "" : "2*");
  const std::string text = "program @large(%x: f32[N]) { " + ops +
                           " %r = concat %a30, %c30 {dim = 0} : f32[3*N] %xs = concat %x, %x, %x {dim = 0} : f32[3*N] "
                           "%s = add %r, %xs : f32[3*N] return %s }";
  const std::vector<float> want{1, 2, 3, 1, 2, 3, 1, 2, 3};
  EXPECT_FALSE(compile_from_disk(text, want));
  const std::vector<fs::path> objects = files();
  ASSERT_GT(objects.size(), 1u);
  EXPECT_TRUE(compile_from_disk(text, want));
  fs::remove(objects[0]);
  EXPECT_FALSE(compile_from_disk(text, want)) << "one of them had to be compiled";
  EXPECT_EQ(files().size(), objects.size());
  EXPECT_TRUE(compile_from_disk(text, want));
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

TEST_F(ObjectCache, MakesPrivateFolders) {
  const mode_t before = ::umask(0);
  mutable_settings().cache_dir = (directory_ / "home" / ".cache" / "weft").string();
  EXPECT_FALSE(compile_from_disk());
  ::umask(before);
  for (const char* each : {"home", "home/.cache", "home/.cache/weft"}) EXPECT_EQ(mode_of(directory_ / each), 0700u);
  EXPECT_TRUE(compile_from_disk());
}

TEST_F(ObjectCache, UsesNoFolderThatOthersMayWriteTo) {
  for (fs::perms perms : {fs::perms::group_write, fs::perms::others_write}) {
    fs::path folder = fresh_folder();
    EXPECT_FALSE(compile_from_disk());
    EXPECT_TRUE(compile_from_disk());
    fs::permissions(folder, perms, fs::perm_options::add);
    const mode_t mode = mode_of(folder);
    EXPECT_FALSE(compile_from_disk());
    fs::remove(files().at(0));
    EXPECT_FALSE(compile_from_disk());
    EXPECT_TRUE(files().empty());
    EXPECT_EQ(mode_of(folder), mode);  // the folder's mode is the user's to change
  }
}

TEST_F(ObjectCache, UsesNoFolderOfAnother) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give a folder away";
  fs::path folder = fresh_folder();
  EXPECT_FALSE(compile_from_disk());
  ASSERT_EQ(::chown(folder.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(compile_from_disk());
  ASSERT_EQ(::chown(folder.c_str(), 0, 0), 0);
  EXPECT_TRUE(compile_from_disk());
  ASSERT_EQ(::chown(files().at(0).c_str(), 12345, 12345), 0);
  EXPECT_FALSE(compile_from_disk());
}

TEST_F(ObjectCache, FollowsNoLinkToAFolderButThoseAboveIt) {
  EXPECT_FALSE(compile_from_disk());
  fs::path folder = settings().cache_dir;
  fs::rename(folder, directory_ / "real");
  fs::create_symlink(directory_ / "real", folder);
  EXPECT_FALSE(compile_from_disk());
  fs::create_directory_symlink(directory_, directory_ / "link");
  mutable_settings().cache_dir = (directory_ / "link" / "real").string();
  EXPECT_TRUE(compile_from_disk());
}

TEST_F(ObjectCache, ReadsNothingButFiles) {
  compile_from_disk();
  fs::path file = files().at(0), object = directory_ / "object";
  fs::rename(file, object);
  fs::create_directory(file);
  expect_compiled("a folder");
  EXPECT_EQ(files().size(), 1u);
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  expect_compiled("a FIFO");
  fs::remove(file);
  fs::create_symlink(object, file);
  expect_compiled("a link to an object");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file)));  // the link was replaced, not what it leads to
  fs::remove(file);
  fs::create_symlink(directory_ / "elsewhere", file);
  expect_compiled("a link to nothing");
  fs::remove(file);
  fs::create_symlink(file, file);
  expect_compiled("a link to itself");
  EXPECT_TRUE(compile_from_disk());
  fs::resize_file(file, uintmax_t{1} << 40);  // a file of holes: nobody reads it into memory
  expect_compiled("a terabyte");
}

TEST_F(ObjectCache, DoesWithoutAnUnreadableFile) {
  constexpr uid_t kNobody = 12345;
  const bool root = ::geteuid() == 0;
  if (root) {  // root may read anything
    ASSERT_EQ(::chown(directory_.c_str(), kNobody, kNobody), 0);
    ASSERT_EQ(::seteuid(kNobody), 0);
  }
  EXPECT_FALSE(compile_from_disk());
  EXPECT_TRUE(compile_from_disk());
  fs::permissions(files().at(0), fs::perms::none);
  EXPECT_FALSE(compile_from_disk());
  EXPECT_TRUE(compile_from_disk());  // it was replaced
  fs::permissions(settings().cache_dir, fs::perms::none);
  EXPECT_FALSE(compile_from_disk());
  fs::permissions(settings().cache_dir, fs::perms::owner_all);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
}

TEST_F(ObjectCache, KeepsWhatWasReadLast) {
  const std::string object(1000, 'x');
  mutable_settings().cache_bytes = 5 * 1100;
  for (int i = 0; i < 4; ++i) jit::store_object(fmt::format("key {}", i), object, jit::Stored::kModule);
  ASSERT_EQ(files().size(), 4u);
  // A file system may tell times of a tick only.
  const struct timespec old[] = {{1000, 0}, {1000, 0}};
  for (const fs::path& file : files()) ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), old, 0), 0);
  EXPECT_TRUE(jit::load_object("key 1", jit::Stored::kModule));
  std::ofstream(fs::path(settings().cache_dir) / "notes") << object << object;  // not ours
  for (int i = 4; i < 8; ++i) jit::store_object(fmt::format("key {}", i), object, jit::Stored::kModule);
  EXPECT_TRUE(jit::load_object("key 1", jit::Stored::kModule));
  for (int i = 4; i < 8; ++i) EXPECT_TRUE(jit::load_object(fmt::format("key {}", i), jit::Stored::kModule)) << i;
  EXPECT_EQ(files().size(), 6u);
  jit::store_object("large", std::string(10000, 'x'), jit::Stored::kModule);
  EXPECT_FALSE(jit::load_object("large", jit::Stored::kModule));
  EXPECT_EQ(files().size(), 6u);
}

TEST_F(ObjectCache, SweepsTemporaryFilesOfTheDead) {
  const fs::path folder = directory_ / "another";  // a folder is looked at when it is first stored to
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  mutable_settings().cache_dir = folder;
  const std::string old_name = "0123456789abcdef.o.17.0", new_name = "0123456789abcdef.o.18.0", other = "mine.o.19.0";
  for (const std::string& name : {old_name, new_name, other}) std::ofstream(folder / name) << "half";
  const struct timespec old[] = {{1000, 0}, {1000, 0}};
  for (const std::string& name : {old_name, other})
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder / name).c_str(), old, 0), 0);
  jit::store_object("key", "object", jit::Stored::kModule);
  EXPECT_FALSE(fs::exists(folder / old_name));
  EXPECT_TRUE(fs::exists(folder / new_name));  // somebody may be writing it
  EXPECT_TRUE(fs::exists(folder / other));
}

}  // namespace
}  // namespace weft::object_cache_test
