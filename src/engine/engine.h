#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/binder.h"
#include "ir/program.h"
#include "runtime/memory/tensor.h"
#include "runtime/threads/team.h"

namespace weft::engine {

/// A program ready to run: thread-safe, any number of calls at once.
class Executable {
 public:
  virtual ~Executable() = default;
  /// The program as given, for types and shapes of inputs and outputs.
  virtual const ir::Program& program() const = 0;
  /// Checks the inputs of a call, and gives symbols their values.
  virtual const ir::Binder& binder() const = 0;
  /// Runs the program. `inputs` fit it, and `symbols` are the sizes that binder() found for them. Outputs are allocated
  /// by the caller, dense and of the sizes that the program's types give; they overlap no other memory. A result that
  /// takes an input's memory (ir::Donation) is the exception: it has the input's address, and that input overlaps no
  /// other. Throws std::bad_alloc when the arena can't be had. After an error the contents of outputs, so of donated
  /// inputs, are undefined.
  virtual void run(const std::vector<int64_t>& symbols, std::span<const runtime::TensorRef> inputs,
                   std::span<const runtime::TensorRef> outputs, runtime::Team& team) const = 0;
  /// Checks the inputs, then runs as above. User's error naming the input, what it must be and what it is, or the two
  /// inputs that share memory.
  void run(std::span<const runtime::TensorRef> inputs, std::span<const runtime::TensorRef> outputs,
           runtime::Team& team) const;
  /// The buffer plan as text, for these sizes of symbols: a line a buffer, the last line the peak in bytes.
  virtual std::string plan(const ir::Bindings& bindings) const = 0;
  /// The whole plan as text, stages included, for any sizes (runtime/plan/plan_text.h).
  virtual std::string plan_text() const = 0;
};

/// Compiles a program. Nothing is kept for later calls (pytorch/operator/program_table.h does that).
std::shared_ptr<const Executable> compile(ir::Program program);
/// Compiles a program given as text. User's error if it doesn't parse.
std::shared_ptr<const Executable> compile(std::string_view text);

/// Counts since the process began: programs compiled, seconds, cache hits, and for each reason how often something ran
/// in the interpreter instead of in machine code.
struct Stats {
  int64_t compiled = 0;
  int64_t object_cache_hits = 0;  ///< taken from the disk instead of compiled
  int64_t instructions = 0;       ///< LLVM instructions compiled
  double compile_seconds = 0;     ///< for which calls waited for programs
  std::map<std::string, int64_t> fallbacks;
};
Stats stats();
void count_fallback(const std::string& reason);

}  // namespace weft::engine
