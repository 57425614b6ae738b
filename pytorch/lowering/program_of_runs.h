#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "lowering/draws.h"
#include "lowering/lowered_run.h"
#include "lowering/symbols.h"

namespace weft::lowering {

/// Random numbers that a program takes as an input.
struct Noise {
  Draw draw;
  at::ScalarType dtype;
  /// By dim: a factor times the sizes of (input, dim)s of the program.
  std::vector<std::pair<int64_t, std::vector<std::pair<size_t, size_t>>>> sizes;
};

/// The program of a function: its inputs are the function's, then `noise`, then what it captured, then `constants`.
struct RunsProgram {
  std::string text;
  std::vector<Noise> noise;
  std::vector<at::Tensor> constants;  ///< tensors of numbers that operations have made themselves
  /// Of each input, captured tensor and constant, by dim: a number, or the name of a symbol.
  std::vector<std::vector<std::variant<int64_t, std::string>>> sizes;
};

/// An operation that PyTorch is to run from inside a program, whose derivative is asked for.
struct ExternOperation {
  /// As the first run has it.
  struct Tensor {
    at::ScalarType dtype;
    std::vector<int64_t> sizes;
    std::vector<bool> is_symbol;  ///< by dim
    bool requires_gradient;
  };
  c10::OperatorHandle op;
  std::string call;                                  ///< as ops.def says of `extern`
  std::vector<c10::IValue> arguments;                ///< of the first run
  std::function<size_t(const at::Tensor&)> operand;  ///< which one a tensor among the arguments is
  std::vector<Tensor> operands, results;
};

/// The text of the derivative's program, empty where there is none that a program can express. Throws
/// recorder::UnsupportedError where there has to be one.
using ExternDerivative = std::function<std::string(const ExternOperation&)>;

/// What lowered runs of one function have in common, as a program: what they have alike is in it as it is, what differs
/// as the symbols' primes do is those symbols. `runs`: one; or two at the primes; or these and a third with the sizes
/// at hand, which has to bear out what the two say.
///
/// Throws Mismatch where the runs did different things; recorder::UnsupportedError for what no program can express.
RunsProgram program_of_runs(const std::vector<LoweredRun*>& runs, const Symbols& symbols,
                            const ExternDerivative& derivative);

}  // namespace weft::lowering
