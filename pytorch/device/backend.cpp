// What PyTorch requires of a device besides kernels.

#include "device/backend.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>

#include "device/call.h"
#include "device/graph/storage.h"
#include "device/kernels/attention.h"
#include "device/kernels/autocast.h"
#include "device/kernels/generator.h"
#include "device/kernels/libraries.h"
#include "device/kernels/recurrent.h"
#include "device/run/devices_in_use.h"
#include "device/run/run.h"
#include "record/recording.h"

namespace weft::device {
namespace {

/// PyTorch takes a registered device for the machine's accelerator. A program that uses no tensor of the device must
/// not get it as such unasked: it sees, in PyTorch's words, what it would see without weft.
void check_in_use() { TORCH_CHECK(devices_in_use() > 0, "Cannot access accelerator device when none is available."); }

/// One device with one stream, on which everything runs in order.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return kDevice;
  }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() <= 0, "weft: there is one device, weft:0, but got ", device);
  }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream getDefaultStream(c10::Device) const override { return getStream(kDevice); }
  /// The stream, also of torch.Stream() without a device. Until the device is in use, it is a stream of the CPU.
  c10::Stream getNewStream(c10::Device, int) const override {
    return devices_in_use() > 0 ? getStream(kDevice) : c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return getStream(kDevice); }
  c10::Stream exchangeStream(c10::Stream) const override { return getStream(kDevice); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(devices_in_use()); }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { sync(); }
  void synchronizeEvent(void*) const override { sync(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { sync(); }
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return make_generator(); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    check_in_use();
    return c10::GetCPUAllocator();
  }
  c10::Device getDeviceFromPtr(void*) const override { return kDevice; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    static_cast<LazyStorage&>(*storage.unsafeGetStorageImpl()).resize(bytes);
  }
};

/// The kernel of operations that were registered after the device, such as a user's. At its first call all such
/// operations get the device's own kernel.
void call_new(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  record::register_kernels();
  call(op, *stack);
}

/// Whether autograd, or forward-mode differentiation, has to see what is done to the tensor.
bool is_differentiated(const at::Tensor& tensor) {
  return (at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(0).defined();
}

/// Whether the call draws random numbers. Numbers are drawn when the operation is called, not when its batch runs.
bool draws(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  const auto probability = op.schema().argumentIndexWithName("dropout_p");
  return !probability || arguments[static_cast<size_t>(*probability)].toDouble() != 0;
}

/// Composite operations of PyTorch's. Where no gradient is wanted each is recorded as one operation, in place of two to
/// twenty, and taken apart only when its batch is compiled.
constexpr const char* kWhole[] = {"linear", "matmul", "_scaled_dot_product_attention_math"};

void call_whole(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const auto has_parts = [](const c10::IValue& argument) {
    if (!argument.isTensor() || !argument.toTensor().defined()) return false;
    return !has_values(argument.toTensor()) || is_differentiated(argument.toTensor());
  };
  const bool is_recorded = record::Recording::current() != nullptr;  // as an operation of weft.scan's step
  if (is_recorded || std::ranges::any_of(arguments, has_parts) || draws(op, arguments))
    return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  const at::AutoDispatchBelowADInplaceOrView below;
  record_or_run_new(operator_of(op), *stack);
}

void register_whole_composites() {
  register_for_device([](torch::Library& library) {
    for (const char* name : kWhole) library.impl(name, torch::CppFunction::makeFromBoxedFunction<&call_whole>());
  });
}

/// Made at load (base/fork.h), never destroyed.
Guard& guard = *new Guard();
Hooks& hooks = *new Hooks();

}  // namespace

void register_backend() {
  const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::PrivateUse1, &guard);  // stays registered
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator());
  c10::SetStorageImplCreate(c10::DeviceType::PrivateUse1, &make_storage);
  record::set_otherwise(&call);
  record::set_otherwise_not_dense(&call_not_dense);
  register_recurrent_modules();
  register_whole_composites();
  register_attention();
  record::register_kernels();
  kept_library(c10::DispatchKey::PrivateUse1, "_").fallback(torch::CppFunction::makeFromBoxedFunction<&call_new>());
  register_autocast();
}

}  // namespace weft::device
