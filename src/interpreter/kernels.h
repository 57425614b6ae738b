#pragma once

#include <span>

#include "interpreter/array.h"
#include "ir/program.h"

namespace weft::interpreter {

class Evaluator;

/// An op to run. Its operands are computed, and its results' sizes and memory are set.
struct Call {
  Evaluator& evaluator;  ///< for ops with regions
  const ir::Op& op;
  std::span<const View> operands;
  std::span<const MutableView> results;

  int64_t count() const { return count_of(results[0].sizes); }  ///< elements of the result
  template <typename T>
  const T* in(size_t i) const {
    return static_cast<const T*>(operands[i].data);
  }
  template <typename T>
  T* out() const {
    return static_cast<T*>(results[0].data);
  }
};

/// The functions that ops.def names, one an op.
namespace kernels {

using Kernel = void (*)(const Call&);

#define WEFT_OP(Enum, text, arity, Class, type_rule, vjp_rule, interpreter, ...) void interpreter(const Call& call);
#include "ir/ops.def"

}  // namespace kernels
}  // namespace weft::interpreter
