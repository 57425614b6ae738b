// Sums and maxima over dims.

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/inline_vector.h"
#include "runtime/calls/calls.h"
#include "runtime/calls/number_type.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/movement.h"

namespace weft::runtime {
namespace {

using Sizes = InlineVector<int64_t, kMaxCopyDims>;

FoldKernel kernel_of(const FoldCall& call) {
  const FoldKernels& kernels = fold_kernels(active_isa());
  const auto& of_types = call.is_sum ? kernels.sum : kernels.max;
  switch (call.dtype) {
    case DType::kF32:
      return of_types[0];
    case DType::kF64:
      return of_types[1];
    case DType::kI32:
      return of_types[2];
    case DType::kI64:
      return of_types[3];
    default:
      internal_error("no fold of {}", name_of(call.dtype));
  }
}

/// Writes the result of folding no elements.
void fill(const FoldCall& call, char* out, int64_t count) {
  with_number_type(call.dtype, [&]<typename T>(T) {
    constexpr T kLeast =
        std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
    std::fill_n(reinterpret_cast<T*>(out), count, call.is_sum ? T{0} : kLeast);
  });
}

/// A fold over dims of a dense operand, as folds of matrices: the rows are the last folded dim, the columns the kept
/// one behind it.
class Fold {
 public:
  Fold(const FoldCall& call, const CallContext& context)
      : call_(call),
        kernel_(kernel_of(call)),
        element_size_(size_of(call.dtype)),
        x_(context.at(call.operand)),
        out_(context.at(call.result)) {
    for (const FoldCall::Dim& dim : call.dims) sizes_.push_back(dim.size.evaluate(context.symbols));
    walked_ = call.dims.size();
    if (!call.dims.back().folded) columns_ = sizes_[--walked_];
  }

  void run(const CallContext& context) {
    if (columns_ == 0) return;
    int64_t kept = 1;
    for (size_t i = 0; i < walked_; ++i)
      if (!call_.dims[i].folded) kept *= sizes_[i];
    // The threads share the outermost kept dim or, where that is too small, the columns.
    const bool by_columns = columns_ >= 64 * context.threads || kept < context.threads;
    part_ = {0, columns_};
    outer_ = {0, kept};
    if (by_columns)
      part_ = context.share(columns_, 64 / element_size_);
    else
      outer_ = context.share(kept);
    if (part_.first >= part_.last) return;
    for (int64_t i = outer_.first; i < outer_.last; ++i)
      fill(call_, out_ + (i * columns_ + part_.first) * element_size_, part_.last - part_.first);
    if (std::ranges::find(sizes_, 0) != sizes_.end()) return;  // empty: only the fill remains
    descend(0, 0, 0);
  }

 private:
  /// Folds `dim` and the dims inside it. `from`: the flattened index over all outer dims; `to`: over the outer dims
  /// that are kept.
  void descend(size_t dim, int64_t from, int64_t to) const {
    if (dim + 1 == walked_) {
      if (to < outer_.first || to >= outer_.last) return;
      const char* x = x_ + (from * sizes_[dim] * columns_ + part_.first) * element_size_;
      char* out = out_ + (to * columns_ + part_.first) * element_size_;
      kernel_(x, sizes_[dim], columns_, out, part_.last - part_.first);
      return;
    }
    for (int64_t i = 0; i < sizes_[dim]; ++i)
      descend(dim + 1, from * sizes_[dim] + i, call_.dims[dim].folded ? to : to * sizes_[dim] + i);
  }

  const FoldCall& call_;
  FoldKernel kernel_;
  int64_t element_size_;
  const char* x_;
  char* out_;
  Sizes sizes_;
  size_t walked_ = 0;  ///< the last dim before it is folded, those before that are walked
  int64_t columns_ = 1;
  Share part_{0, 0}, outer_{0, 0};
};

}  // namespace

bool run(const FoldCall& call, const CallContext& context, std::string&) {
  Fold(call, context).run(context);
  return true;
}

}  // namespace weft::runtime
