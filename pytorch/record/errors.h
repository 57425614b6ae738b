#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "operator/aten.h"

namespace weft::record {

/// Thrown when the function asks for a value that is known only when the program runs.
struct ReadsValueError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown when the function does something that no program can express; the function must then run as it is.
struct UnsupportedError : std::runtime_error {
  static constexpr size_t kNoOperation = SIZE_MAX;
  explicit UnsupportedError(const std::string& reason, size_t operation = kNoOperation)
      : std::runtime_error(reason), operation(operation) {}
  size_t operation;  ///< the recorded operation at or near the fault, by number, if known
};

/// Thrown when a tensor of the function handles operations itself: a transform's wrapper, a subclass.
struct UnrecordableError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown when the function changes a tensor that it didn't make.
struct MutationError : std::runtime_error {
  MutationError(const std::string& op, at::Tensor tensor) : runtime_error(op), tensor(std::move(tensor)) {}
  at::Tensor tensor;  ///< the tensor from outside that was changed, directly or through a view
};

}  // namespace weft::record
