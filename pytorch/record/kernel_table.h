#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>

#include <string>
#include <unordered_map>

namespace weft::record {

/// The kernels by operation: filled while the library is loaded, and only read afterwards.
class KernelTable {
 public:
  /// `function` is of the schema's types, with int64_t and IntArrayRef for SymInts.
  template <typename Function>
  void add(const char* name, const char* overload, Function* function) {
    kernels_.emplace(c10::OperatorName(std::string("aten::") + name, overload),
                     c10::KernelFunction::makeFromUnboxedRuntimeFunction(function));
  }

  /// For an operation of Weft's own.
  template <typename Function>
  void add_own(const char* name, Function* function) {
    kernels_.emplace(c10::OperatorName(std::string("weft::") + name, ""),
                     c10::KernelFunction::makeFromUnboxedRuntimeFunction(function));
  }

  const c10::KernelFunction* find(const c10::OperatorName& name) const {
    auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<c10::OperatorName, c10::KernelFunction> kernels_;
};

}  // namespace weft::record
