#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "operator/program_table.h"
#include "programs/draws.h"
#include "programs/imported_run.h"
#include "programs/sizes.h"

namespace weft::programs {

/// Random numbers that a program takes as an input.
struct Noise {
  Draw draw;
  at::ScalarType dtype;
  /// For each dim of the random numbers the factors of its size: a number, and the sizes of some dims of the program's
  /// inputs, by pairs (input, dim).
  std::vector<std::pair<int64_t, std::vector<std::pair<size_t, size_t>>>> sizes;
};

/// The program of a function. Its inputs are those of the function, then `noise`, then captured tensors, then
/// `constants`.
struct RunsProgram {
  ir::Program program;
  std::vector<Noise> noise;
  std::vector<at::Tensor> constants;  ///< tensors of numbers that operations have made; complex ones as pairs
  /// For each input, captured tensor and constant, and each of its dims: a number, or an expression of symbols.
  std::vector<std::vector<std::variant<int64_t, std::string>>> sizes;
};

/// An operation that becomes an `extern` op and needs a derivative.
struct ExternOperation {
  /// A tensor in the first run.
  struct Tensor {
    at::ScalarType dtype;
    std::vector<int64_t> sizes;
    std::vector<std::string> expressions;  ///< by dim: the size as an expression of symbols; empty for a number
    bool requires_gradient;
  };
  c10::OperatorHandle op;
  std::string call;                                  ///< the op's attribute `call`
  std::vector<c10::IValue> arguments;                ///< the arguments in the first run
  std::function<size_t(const at::Tensor&)> operand;  ///< the operand's index, for a tensor among the arguments
  std::vector<Tensor> operands, results;
};

/// Makes the derivative's program; null if no program can express it. Where the derivative is needed, throws
/// record::UnsupportedError instead.
using ExternDerivative = std::function<torch_operator::ProgramRef(const ExternOperation&)>;

/// How a program takes and returns complex tensors: not at all, or as pairs [..., 2], the layout of torch.view_as_real.
enum class ComplexEnds { kRefused, kPairs };

/// A recorded run of a function.
struct SourceRun {
  record::Recording* recording;
  std::vector<size_t> free;  ///< numbers that become inputs, by their words in the record
  Callbacks callbacks;
};

/// Whether an operation stays whole if its decomposition depends on sizes.
enum class Whole { kNever, kWhereSizesDecide };

/// Whether operations whose results nobody reads are left out. Kept ones that no program can express are left out too.
enum class Unread { kLeftOut, kKept };

/// For a caller that rewrites the program and needs to know which recorded operation each op belongs to.
struct Noted {
  std::set<std::string> whole;     ///< operations that always stay whole, as PyTorch prints them
  std::set<std::string> may_stay;  ///< the only ones that stay whole if their decomposition depends on sizes
};

/// Generalises runs of one function to a program. The sizes that may vary are different in two runs: an integer that is
/// the same in both is a constant, and an integer that differs is an expression of symbols (record/size_fit.h). `runs`:
/// one run; two runs at sample sizes; or these two and a third at the call's own sizes, which must agree with the two.
/// `whole`: an operation whose decompositions differ from run to run may be left to PyTorch.
///
/// `noted`: each op gets the note passes::kSourceOperation.
///
/// Throws Mismatch if the runs did different things; record::UnsupportedError for anything that no program can
/// express.
RunsProgram program_of_runs(const std::vector<SourceRun>& runs, const record::SizeFit& sizes,
                            const ExternDerivative& derivative, Whole whole, const Noted* noted = nullptr,
                            ComplexEnds complex_ends = ComplexEnds::kRefused, Unread unread = Unread::kLeftOut);

}  // namespace weft::programs
