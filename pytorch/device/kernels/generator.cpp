#include "device/kernels/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include "device/graph/storage.h"

namespace weft::device {
namespace {

/// A generator of the device that draws from one of the CPU's.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(at::Generator source)
      : GeneratorImpl(kDevice, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), source_(std::move(source)) {}

  void set_current_seed(uint64_t seed) override { source_.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { source_.set_offset(offset); }
  uint64_t get_offset() const override { return source_.get_offset(); }
  uint64_t current_seed() const override { return source_.current_seed(); }
  uint64_t seed() override { return source_.seed(); }
  void set_state(const c10::TensorImpl& state) override { source_.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return source_.unsafeGetGeneratorImpl()->get_state();
  }
  const at::Generator& source() const { return source_; }

 private:
  Generator* clone_impl() const override { return new Generator(source_.clone()); }

  at::Generator source_;
};

/// Made at load (base/fork.h).
const at::Generator& the_default =
    *new at::Generator(at::make_generator<Generator>(at::detail::getDefaultCPUGenerator()));

}  // namespace

const at::Generator& default_generator() { return the_default; }

at::Generator make_generator() { return at::make_generator<Generator>(at::detail::createCPUGenerator()); }

c10::IValue generator_on_cpu(const c10::IValue& generator) {
  if (generator.isNone()) return generator;
  const at::Generator given = generator.toGenerator();
  if (!given.defined() || given.device().is_cpu()) return generator;
  TORCH_CHECK(given.device().type() == c10::DeviceType::PrivateUse1,
              "Expected a 'weft' device type for generator but "
              "found '",
              given.device().type(), "'");
  return static_cast<Generator*>(given.unsafeGetGeneratorImpl())->source();
}

}  // namespace weft::device
