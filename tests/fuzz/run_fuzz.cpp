// For any program that the bytes stand for: the engine compiles it, runs it within its memory and gives the
// interpreter's results. Up to kSeedBytes bytes are the seed of a random valid program; more bytes are program text.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "mutate.h"
#include "native_run.h"
#include "passes/differentiation/vjp.h"
#include "random_program.h"

namespace {

using weft::interpreter::Array;

constexpr size_t kSeedBytes = 16;
/// Bounds of a program of text: elements of all values, over all steps, and ops to compile.
constexpr int64_t kMostElements = 200'000, kMostOps = 80, kMostConstant = 64;
constexpr int64_t kMostSize = 4;

/// Ends the process, which libFuzzer takes for a finding.
[[noreturn]] void report(const std::string& what, const std::string& detail) {
  std::fprintf(stderr, "%s:\n%s\n", what.c_str(), detail.c_str());
  std::abort();
}

/// A few numbers of a seed, one after the other (splitmix64).
struct Numbers {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
};

// ---- how large a program of text is

/// Infinity where a size is beyond the sizes tried.
double elements(const weft::ir::Shape& shape, const weft::ir::Bindings& bindings) {
  double count = 1;
  for (const weft::ir::Dim& dim : shape) {
    const auto size = weft::ir::try_evaluate(dim, bindings);
    if (!size || dim.number() > kMostConstant) return std::numeric_limits<double>::infinity();
    for (const weft::ir::Dim::Term& term : dim.terms())
      if (term.factor > kMostConstant) return std::numeric_limits<double>::infinity();
    count *= static_cast<double>(std::max<int64_t>(*size, 0));  // a negative one is an error at the call
  }
  return count;
}

struct Cost {
  int64_t ops = 0;
  double elements = 0;
  bool bounded = true;  ///< whether the program surely ends, and calls nothing outside
};

void add_cost(const weft::ir::Program& program, const weft::ir::Block& block, const weft::ir::Bindings& bindings,
              double times, Cost& cost) {
  for (const weft::ir::Op& op : block.ops) {
    ++cost.ops;
    cost.bounded = cost.bounded && op.code != weft::ir::OpCode::kWhile && op.code != weft::ir::OpCode::kExtern;
    double operands = 1;  // a product reads each many times
    for (weft::ir::ValueId operand : op.operands)
      operands = std::max(operands, elements(program.type(operand).shape, bindings));
    for (weft::ir::ValueId result : op.results)
      cost.elements += times * std::max(operands, elements(program.type(result).shape, bindings));
    double steps = times;
    if (op.code == weft::ir::OpCode::kScan) steps *= std::max(1.0, elements({weft::ir::ScanView(op).length}, bindings));
    for (const weft::ir::Block& region : op.regions) add_cost(program, region, bindings, steps, cost);
  }
}

void add_symbols(const weft::ir::Shape& shape, std::vector<std::string>& symbols) {
  for (const weft::ir::Dim& dim : shape) {
    std::set<std::string> names;
    dim.add_symbols(names);
    symbols.insert(symbols.end(), names.begin(), names.end());
  }
}

/// Small sizes for all symbols, and batch sizes that fit packed sequences: all B rows in the first step, at least one
/// in each.
weft::ir::Bindings small_sizes(const weft::ir::Program& program, Numbers& numbers) {
  std::vector<std::string> symbols{"T", "B", "N"};
  for (const auto& value : program.values) add_symbols(value.type.shape, symbols);
  weft::ir::Bindings bindings;
  for (const std::string& symbol : symbols) bindings[symbol] = numbers.below(kMostSize + 1);
  int64_t &t = bindings["T"], &b = bindings["B"];
  if (std::ranges::count(symbols, "N") > 1) b = std::max<int64_t>(b, 1);
  const int64_t least = t + b - 1;
  bindings["N"] = t == 0 || b == 0 ? 0 : least + numbers.below(t * b - least + 1);
  return bindings;
}

// ---- running

/// The results, or the user's error in running them.
struct Outcome {
  std::vector<Array> results;
  std::string error;
};

template <typename Action>
Outcome outcome_of(const std::string& text, const char* who, Action action) {
  try {
    return {action(), ""};
  } catch (const weft::Error& error) {
    return {{}, error.what()};
  } catch (const std::bad_alloc&) {
    return {{}, "out of memory"};
  } catch (const std::exception& error) {
    report(std::string(who) + " failed: " + error.what(), text);
  }
}

/// The largest difference, relative to the largest magnitude or 1; results that overflow aren't compared.
double largest_difference(const Array& got, const Array& want) {
  std::vector<double> x = got.to_doubles(), y = want.to_doubles();
  double scale = 1, worst = 0;
  for (double value : y) {
    if (!std::isfinite(value)) return 0;
    scale = std::max(scale, std::abs(value));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    double difference = std::abs(x[i] - y[i]) / scale;
    worst = std::max(worst, std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity());
  }
  return worst;
}

/// `tolerance` < 0: numbers aren't compared, since the program may be chaotic.
void run(const weft::ir::Program& program, const weft::ir::Bindings& bindings, Numbers& numbers, double tolerance) {
  std::string text = weft::ir::print(program);
  std::vector<Array> inputs;
  try {
    inputs = weft::testing::random_inputs(program, bindings, numbers.next());
  } catch (const std::exception&) {
    return;  // no inputs fit these sizes
  }
  Outcome want = outcome_of(text, "the interpreter", [&] { return weft::interpreter::evaluate(program, inputs); });
  weft::mutable_settings().share_all = numbers.below(2) != 0;
  weft::mutable_settings().pack = std::array{"", "always", "never", "way"}[static_cast<size_t>(numbers.below(4))];
  auto& team = weft::runtime::own_team(1 + numbers.below(3));
  Outcome got = outcome_of(text, "the engine", [&] { return weft::testing::run_native(text, inputs, bindings, team); });
  if (want.error.empty() && !got.error.empty())
    report("the engine fails and the interpreter does not", fmt::format("{}\n{}", got.error, text));
  // The engine doesn't run ops that nobody reads, bad data of theirs included.
  if (tolerance < 0 || !want.error.empty()) return;
  for (size_t i = 0; i < want.results.size(); ++i)
    if (double difference = largest_difference(got.results[i], want.results[i]); difference > tolerance)
      report(fmt::format("result {} is off by {}", i, difference), text);
}

void run_text(std::string_view text) {
  weft::ir::Program program;
  try {
    program = weft::ir::parse(text);
  } catch (const weft::Error&) {
    return;
  }
  Numbers numbers{std::hash<std::string_view>{}(text)};
  weft::ir::Bindings bindings = small_sizes(program, numbers);
  Cost cost;
  add_cost(program, program.body, bindings, 1, cost);
  for (const auto& value : program.values) cost.elements += elements(value.type.shape, bindings);
  if (!cost.bounded || cost.ops > kMostOps || cost.elements > static_cast<double>(kMostElements)) return;
  run(program, bindings, numbers, -1);
}

void run_seed(uint64_t seed) {
  struct Kind {
    weft::DType dtype;
    bool mixed;
    double tolerance;  // as in tests/unit/engine/engine_random_test.cpp
  };
  static constexpr Kind kKinds[] = {{weft::DType::kF64, false, 1e-9}, {weft::DType::kF32, false, 1e-3},
                                    {weft::DType::kF64, true, 2e-2},  {weft::DType::kF32, true, 2e-2},
                                    {weft::DType::kF16, false, 1e-2}, {weft::DType::kBF16, false, 5e-2}};
  Numbers numbers{seed};
  const Kind& kind = kKinds[numbers.below(std::ssize(kKinds))];
  weft::testing::RandomOptions options{.ops = 4 + static_cast<int>(numbers.below(8)),
                                       .scan_depth = 1 + static_cast<int>(numbers.below(2)),
                                       .mixed = kind.mixed,
                                       .ragged = numbers.below(3) == 0,
                                       .row_wise = numbers.below(2) == 0,
                                       .dtype = kind.dtype};
  const bool differentiates = numbers.below(3) == 0;
  options.loops = !differentiates;
  weft::ir::Program program = weft::testing::random_program(numbers.next(), options);
  if (differentiates) {
    std::vector<bool> wanted;
    for (weft::ir::ValueId input : program.body.args) wanted.push_back(weft::is_floating(program.type(input).dtype));
    program = weft::passes::vjp_of_primals(program, wanted);
  }
  for (int i = 0; i < 2; ++i) run(program, small_sizes(program, numbers), numbers, kind.tolerance);
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  weft::mutable_settings().cache_dir = "";
  weft::mutable_settings().guard = true;
  return 0;
}

/// Half of the inputs are seeds, half are text: random programs are valid, and mutated text has things that the
/// generator doesn't make.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 2 == 0 && max_size >= sizeof(seed)) {
    std::memcpy(data, &seed, sizeof(seed));
    return sizeof(seed);
  }
  std::string text = weft::fuzz::mutate({reinterpret_cast<const char*>(data), size}, seed / 2);
  if (text.empty() || text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kSeedBytes) {
    run_text({reinterpret_cast<const char*>(data), size});
    return 0;
  }
  uint64_t seed = 0;
  std::memcpy(&seed, data, std::min(size, sizeof(seed)));
  run_seed(seed);
  return 0;
}
