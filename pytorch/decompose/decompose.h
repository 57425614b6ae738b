#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include "operator/aten.h"

/// ATen operations that the IR has no op for, as others that it has.
///
/// PyTorch's own decompositions stand behind these. What is here is what they lack, what they would differentiate to
/// something else than eager mode does (at a kink, or where an untaken branch overflows), and what is so common in a
/// step that importing them for it alone would take longer than the capture.
///
/// They run on tensors that hold nothing, so they read no values. Sizes are those at hand but may stand for symbols: a
/// size may be an operation's integer argument, but no floating-point number where it may be the leading dim's.
namespace weft::decompose {

/// The kernel, of the operation's own schema, that makes the operation of others; nullptr where there is none here.
const c10::KernelFunction* find(const c10::OperatorName& name);

/// The kernels by operation: filled while the library is loaded, and only read afterwards.
class Table {
 public:
  /// `function` is of the schema's types, with int64_t and IntArrayRef for SymInts.
  template <typename Function>
  void add(const char* name, const char* overload, Function* function) {
    kernels_.emplace(c10::OperatorName(std::string("aten::") + name, overload),
                     c10::KernelFunction::makeFromUnboxedRuntimeFunction(function));
  }

  const c10::KernelFunction* find(const c10::OperatorName& name) const {
    auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<c10::OperatorName, c10::KernelFunction> kernels_;
};

void add_activations(Table& table);
void add_elementwise(Table& table);
void add_movement(Table& table);
void add_products(Table& table);
void add_reductions(Table& table);
void add_running_totals(Table& table);

}  // namespace weft::decompose
