// Runs a fuzz target on the same inputs each time, without libFuzzer and its sanitizers: `make test` has time for that
// on every change. Usage: <target>_replay CORPUS RUNS [RUN], the last to repeat one run.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/// libFuzzer's own changes of bytes are missing here: they hardly ever leave a program.
extern "C" size_t LLVMFuzzerMutate(uint8_t*, size_t size, size_t) { return size; }

namespace {

constexpr size_t kMostBytes = 1 << 14;
constexpr int kMostChanges = 3;

std::vector<std::string> read_corpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream file(path);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

std::string input(const std::vector<std::string>& corpus, uint64_t run) {
  std::mt19937_64 random(run);
  std::string bytes = corpus[random() % corpus.size()];
  size_t size = bytes.size();
  bytes.resize(kMostBytes);
  for (uint64_t change = random() % kMostChanges; change < kMostChanges; ++change) {
    size = LLVMFuzzerCustomMutator(reinterpret_cast<uint8_t*>(bytes.data()), size, kMostBytes,
                                   static_cast<unsigned>(random()));
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: %s CORPUS RUNS [RUN]\n", argv[0]), 2;
  const std::vector<std::string> corpus = read_corpus(argv[1]);
  if (corpus.empty()) return std::fprintf(stderr, "%s: no files\n", argv[1]), 2;
  const uint64_t runs = std::strtoull(argv[2], nullptr, 10);
  const uint64_t only = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : runs;
  LLVMFuzzerInitialize(&argc, &argv);
  for (uint64_t run = argc > 3 ? only : 0; run < runs; ++run) {
    // Written on one line, whose end tells in which run the process ended, if a run doesn't return.
    std::fprintf(stderr, "\rrun %llu ", static_cast<unsigned long long>(run));
    const std::string bytes = input(corpus, run);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    if (run == only) break;
  }
  std::fprintf(stderr, "\nall agree\n");
}
