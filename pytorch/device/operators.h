#pragma once

#include <optional>

#include "operator/aten.h"
#include "record/traits.h"

namespace weft::device {

/// What the device needs to know of an operation.
struct Operator {
  enum class Kind : uint8_t {
    kRecorded,     ///< its results are new tensors
    kView,         ///< its results are views of one of its arguments
    kViewInPlace,  ///< shows another part of its argument's storage (transpose_)
    kReads,        ///< its result, or the result's shape, depends on values
    kDraws,        ///< draws random numbers
    kWrites,       ///< changes arguments
    kComposite,    ///< made of others (_foreach_add_)
    kOwn           ///< has a function of its own here
  };
  enum class Slot : uint8_t { kPlain, kTensor, kTensors, kDevice, kGenerator, kProgram };
  using Function = void (*)(const Operator& op, torch::jit::Stack& stack);

  c10::OperatorHandle handle;
  record::Traits traits;
  Kind kind = Kind::kRecorded;
  Function function = nullptr;               ///< of kOwn
  std::optional<c10::OperatorHandle> plain;  ///< of kWrites: the variant that gives new tensors, of the first arguments
  std::vector<Slot> slots;                   ///< by argument
  bool takes_device = false;                 ///< has an argument that is a device
  bool differs_from_meta = false;  ///< the CPU's kernel gives other sizes or strides than the Meta kernel says
  bool is_made_of_numbers = true;  ///< takes no tensors, but for those it writes its results to
  bool is_pointwise = false;       ///< what it writes must not overlap what it reads but in full
  bool takes_any_device = false;   ///< operands on the CPU are right beside others on the device

  const c10::FunctionSchema& schema() const { return handle.schema(); }
  size_t arguments() const { return slots.size(); }
};

/// Found once for each operation; never freed.
const Operator& operator_of(const c10::OperatorHandle& handle);
/// Of an operation that is part of PyTorch; not fast.
const Operator& operator_named(const char* name, const char* overload);

/// The device's function for an operation; nullptr if it has none of its own.
Operator::Function own_function(const std::string& name);

}  // namespace weft::device
