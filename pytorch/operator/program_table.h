#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compile_ahead.h"
#include "engine/engine.h"
#include "operator/signature.h"
#include "passes/differentiation/gradient_paths.h"
#include "passes/differentiation/vjp.h"

namespace weft::torch_operator {

/// A program that is passed on inside the process, without a text.
using SharedProgram = std::shared_ptr<const ir::Program>;

class CallProgram;
/// A reference keeps the program alive.
using ProgramRef = std::shared_ptr<const CallProgram>;

/// Guards short look-ups, here and in pytorch/override. Never held while parsing, deriving, compiling or calling out;
/// held across a fork (base/fork.h).
std::mutex& lookup_mutex();

/// The result of passes::vjp, with its two programs interned.
struct Derivative {
  ProgramRef forward;  ///< null where the forward is the program itself, which would otherwise keep itself alive
  ProgramRef backward;
  std::vector<int64_t> saved_inputs, saved_outputs;
  int64_t residuals;
  std::vector<bool> differentiable;  ///< by output: whether a gradient of it gets to a wanted input
};

/// A program of the operator, from its text to its executable and its derivatives. As long as it lives, the address of
/// its text identifies it. All functions may be called from several threads at once.
class CallProgram {
 public:
  CallProgram(std::string text, SharedProgram program);

  const std::string& text() const { return text_; }
  const ir::Program& program() const { return *program_; }
  const SharedProgram& shared() const { return program_; }
  const Signature& signature() const { return signature_; }
  /// Compiled at the first use. At most Settings::executables are kept, of the most recently used programs.
  std::shared_ptr<const engine::Executable> executable() const;
  /// Compiles the program on a thread of its own, if a core is free, so that the first use waits less. Does so once.
  void compile_ahead() const;
  /// Derived at the first use of each `wanted`: for each input, whether its gradient is asked for.
  const Derivative& derivative(const std::vector<bool>& wanted) const;
  /// Found at the first use.
  const passes::GradientPaths& gradient_paths() const;
  /// The program of passes::vjp_of_primals.
  ProgramRef of_primals(const std::vector<bool>& wanted) const;
  /// The program of passes::jvp_of_primals.
  ProgramRef of_tangents(const std::vector<bool>& varied) const;
  /// The program of passes::without_cotangents.
  ProgramRef without_cotangents(const std::vector<bool>& absent) const;

 private:
  friend class ProgramTable;
  using Derived = std::map<std::vector<bool>, ProgramRef>;
  std::vector<bool> differentiable(const std::vector<bool>& wanted) const;
  ProgramRef derive(Derived& known, const std::vector<bool>& inputs,
                    ir::Program (*pass)(const ir::Program&, const std::vector<bool>&)) const;

  std::string text_;
  SharedProgram program_;
  Signature signature_;
  mutable std::shared_ptr<const engine::Executable> executable_;  ///< under lookup_mutex()
  mutable std::shared_ptr<engine::CompilationAhead> ahead_;  ///< under lookup_mutex(); null once there is an executable
  mutable std::atomic<bool> was_asked_for_ahead_{false};
  mutable std::atomic<int64_t> last_use_{0};
  mutable std::map<std::vector<bool>, std::unique_ptr<const Derivative>> derivatives_;
  mutable std::unique_ptr<const passes::GradientPaths> gradient_paths_;
  mutable Derived of_primals_, of_tangents_, without_cotangents_;
};

/// The program of a text. Looks for a program whose text is at this very address, then for one with an equal text; if
/// there is neither, parses the text. User's error if the text doesn't parse. Programs that nobody else keeps are freed
/// when there are many, the least recently used first.
ProgramRef find_program(std::string_view text);

/// While an object lives, this thread's look-ups by text first compare the text's address with the program's.
class ProgramAtHand {
 public:
  explicit ProgramAtHand(const ProgramRef& program);
  ~ProgramAtHand();
  ProgramAtHand(const ProgramAtHand&) = delete;
  ProgramAtHand& operator=(const ProgramAtHand&) = delete;

 private:
  const ProgramRef* before_;
};

/// Prints the program, and finds it or adds it like find_program.
ProgramRef intern(SharedProgram program);
ProgramRef intern(ir::Program program);

/// The number of programs in the table, and the number of compiled ones.
struct KeptPrograms {
  int64_t programs = 0, executables = 0;
};
KeptPrograms kept_programs();

}  // namespace weft::torch_operator
