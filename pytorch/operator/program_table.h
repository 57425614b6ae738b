#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "operator/signature.h"
#include "passes/differentiation/vjp.h"

namespace weft::torch_operator {

class CallProgram;

/// Guards short look-ups, here and in pytorch/override. Never held while parsing, deriving, compiling or calling out;
/// held across a fork (base/fork.h).
std::mutex& lookup_mutex();

/// The result of passes::vjp, with its two programs interned.
struct Derivative {
  const CallProgram* forward;
  const CallProgram* backward;
  std::vector<int64_t> saved_inputs, saved_outputs;
  int64_t residuals;
};

/// A program that the operator was called with. It is never freed, so the address of its text identifies it. All
/// functions may be called from several threads at once.
class CallProgram {
 public:
  CallProgram(std::string text, ir::Program program);

  const std::string& text() const { return text_; }
  const ir::Program& program() const { return program_; }
  const Signature& signature() const { return signature_; }
  /// Compiled at the first use. At most Settings::executables are kept, the most recently used ones.
  std::shared_ptr<const engine::Executable> executable() const;
  /// Under lookup_mutex().
  bool is_compiled() const { return executable_ != nullptr; }
  /// Derived at the first use of each `wanted`: for each input, whether its gradient is asked for.
  const Derivative& derivative(const std::vector<bool>& wanted) const;
  /// The program of passes::vjp_of_primals.
  const CallProgram& of_primals(const std::vector<bool>& wanted) const;
  /// The program of passes::jvp_of_primals.
  const CallProgram& of_tangents(const std::vector<bool>& varied) const;

 private:
  std::string text_;
  ir::Program program_;
  Signature signature_;
  static void free_executables();
  mutable std::shared_ptr<const engine::Executable> executable_;  ///< under lookup_mutex()
  mutable std::atomic<int64_t> last_use_{0};
  mutable std::map<std::vector<bool>, std::unique_ptr<const Derivative>> derivatives_;
  using Derived = std::map<std::vector<bool>, const CallProgram*>;
  const CallProgram& derive(Derived& known, const std::vector<bool>& inputs,
                            ir::Program (*pass)(const ir::Program&, const std::vector<bool>&)) const;
  mutable Derived of_primals_, of_tangents_;
};

/// The program of that text: found by the text's address if it is an interned one, else by its contents, else parsed.
/// User's error if it doesn't parse.
const CallProgram& find_program(std::string_view text);

/// How many programs have been compiled and are kept.
int64_t kept_executables();

/// As find_program, for a program that is there already.
const CallProgram& intern(ir::Program program);

}  // namespace weft::torch_operator
