#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/external.h"

namespace weft {

/// An extern op's `call` that is made many times: its text has been read, and what it names has been found. Any number
/// of threads may run it at once.
class PreparedExtern {
 public:
  PreparedExtern() = default;
  virtual ~PreparedExtern() = default;
  PreparedExtern(const PreparedExtern&) = delete;
  PreparedExtern& operator=(const PreparedExtern&) = delete;

  /// As run_extern with the call's text.
  virtual void run(std::span<const ExternTensor> operands, std::span<const ExternTensor> results) const = 0;
};

/// May throw what running the call would throw.
using PrepareExtern = std::unique_ptr<const PreparedExtern> (*)(std::string_view call);

/// Registers the function that prepares calls; the PyTorch side does so once, as it is loaded.
void set_prepare_extern(PrepareExtern prepare);

/// Prepares a call. Null if no function is registered: then run_extern makes it.
std::unique_ptr<const PreparedExtern> prepare_extern(std::string_view call);

}  // namespace weft
