#include "resident/step.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/build_id.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/settings.h"
#include "ir/text/printer.h"
#include "jit/background.h"
#include "jit/digest.h"
#include "jit/object_cache.h"
#include "packages/package.h"
#include "packages/target.h"
#include "runtime/kernels/kernels.h"

namespace weft::resident {
namespace {

constexpr uint32_t kAbi = 1;

/// At load, since a static of a function has a lock that no fork can hold (base/fork.h).
const std::string& this_build = *new std::string(build_id());

/// The key of a step's object: everything that machine code follows from, tensors by a digest.
std::string key_of(const packages::StepModel& model, const packages::Target& target) {
  std::string types;
  std::vector<std::string_view> bytes;
  const auto add = [&](const std::vector<interpreter::Array>& arrays) {
    for (const interpreter::Array& array : arrays) {
      types += fmt::format("{}[{}] ", name_of(array.dtype), fmt::join(array.sizes, ","));
      bytes.emplace_back(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
    }
    types += "; ";
  };
  add(model.states);
  for (const ir::Type& input : model.inputs) types += ir::to_string(input) + " ";
  types += "; ";
  add(model.weights);
  return fmt::format("step of {} for {}, without {}, stored as {}, names {} ({}) ({}) ({}), types {}, numbers {}\n{}",
                     this_build, target.name, fmt::join(settings().disabled, ","), name_of(model.stored), model.name,
                     fmt::join(model.state_names, ","), fmt::join(model.input_names, ","),
                     fmt::join(model.output_names, ","), types, jit::digest(bytes), ir::print(model.program));
}

/// Without a build ID nothing tells objects of two builds apart.
std::optional<std::string> load(const std::string& key) {
  return this_build.empty() ? std::nullopt : jit::load_object(key, jit::Stored::kModule);
}
void store(const std::string& key, const std::string& object) {
  if (!this_build.empty()) jit::store_object(key, object, jit::Stored::kModule);
}

packages::Object compile(const packages::StepModel& model, packages::Parts parts) {
  packages::Object object;
  jit::while_no_fork([&] { object = packages::compile(model, packages::find_target(target_here()), false, parts); });
  return object;
}

/// The steps of streams that are alive, by key: streams of one model share their machine code. Never destroyed.
struct Alive {
  std::mutex& mutex = hold_across_fork(*new std::mutex, LockRank::kLookup);
  std::map<std::string, std::weak_ptr<const Step>> steps;
};
Alive& alive = *new Alive;

std::shared_ptr<const Step> find_alive(const std::string& key) {
  const std::lock_guard lock(alive.mutex);
  const auto found = alive.steps.find(key);
  return found == alive.steps.end() ? nullptr : found->second.lock();
}

bool may_fail(const ir::Program& program, const ir::Block& block) {
  return std::ranges::any_of(block.ops, [&](const ir::Op& op) {
    return ir::fails(program, op) != ir::Fails::kNever ||
           std::ranges::any_of(op.regions, [&](const ir::Block& inner) { return may_fail(program, inner); });
  });
}

}  // namespace

std::string target_here() {
  std::string best(packages::host_target());
  if (packages::find_target(best).architecture != "x86_64") return best;
  switch (runtime::vector_isa(runtime::active_isa())) {
    case runtime::Isa::kAvx512:
      return best;
    case runtime::Isa::kAvx2:
      return best == "x86-64-v4" ? "x86-64-v3" : best;
    default:
      return "x86-64";
  }
}

std::shared_ptr<const Step> Step::make(packages::StepModel given) {
  const auto model = std::make_shared<const packages::StepModel>(std::move(given));
  const std::string key = key_of(*model, packages::find_target(target_here()));
  if (auto known = find_alive(key)) return known;
  const std::shared_ptr<Step> step(new Step(resident::may_fail(model->program, model->program.body)));
  step->prepare(step, model, key);
  const std::lock_guard lock(alive.mutex);
  std::erase_if(alive.steps, [](const auto& entry) { return entry.second.expired(); });
  alive.steps[key] = step;
  return step;
}

void Step::prepare(const std::shared_ptr<Step>& self, const std::shared_ptr<const packages::StepModel>& model,
                   const std::string& key) {
  if (auto found = load(key)) {
    from_cache_ = true;
    link(model->name, *std::move(found), whole_);
  } else {
    packages::Object object = compile(*model, packages::Parts::kSingleSteps);
    if (object.is_whole) store(key, object.bytes);
    link(model->name, std::move(object.bytes), first_);
    if (!object.is_whole && jit::in_background([self, model, key] { self->finish(*model, key); })) return;
  }
  is_whole_ = true;
}

/// Compiles the whole object, which also has the function for several steps, in place of the first object, which has
/// single steps alone.
void Step::finish(const packages::StepModel& model, const std::string& key) {
  try {
    packages::Object object = compile(model, packages::Parts::kAll);
    store(key, object.bytes);
    link(model.name, std::move(object.bytes), whole_);
  } catch (const std::exception&) {
    // Then steps stay single.
  }
  is_whole_.store(true, std::memory_order_release);
  is_whole_.notify_all();
}

// Must be in the same library as the code that notifies: another library may have its own table of waiting threads.
void Step::wait() const { is_whole_.wait(false, std::memory_order_acquire); }

void Step::link(const std::string& name, std::string object, std::unique_ptr<jit::Code>& code) {
  code = jit::link({std::move(object)});
  void* describe = reinterpret_cast<void*>(code->function(name + "_model"));
  const Model* model = reinterpret_cast<const Model* (*)()>(describe)();
  internal_check(model->abi == kAbi, "a step's machine code has ABI {}", model->abi);
  if (const Model* before = model_.load(std::memory_order_relaxed))
    internal_check(before->state_bytes == model->state_bytes, "a step's states have two sizes");
  model_.store(model, std::memory_order_release);
}

State::State(std::shared_ptr<const Step> step)
    : step_(std::move(step)),
      memory_(static_cast<std::byte*>(
                  ::operator new(step_->model().state_bytes, std::align_val_t(step_->model().state_align))),
              Free{step_->model().state_align}) {
  step_->model().reset(memory_.get());
}

bool State::run(const void* const* inputs, void* const* outputs) {
  return step_->model().step(memory_.get(), inputs, outputs) == 0;
}

size_t State::run(const void* const* inputs, void* const* outputs, size_t steps) {
  if (step_->may_fail()) return run_one_by_one(inputs, outputs, steps);
  const int status = step_->model().run(memory_.get(), inputs, outputs, steps);
  internal_check(status == 0, "a step that can't fail has failed ({})", status);
  return steps;
}

/// For steps that may fail: of these a package too computes one at a time.
size_t State::run_one_by_one(const void* const* inputs, void* const* outputs, size_t steps) {
  const Model& model = step_->model();
  std::vector<const void*> given(inputs, inputs + model.input_count);
  std::vector<void*> made(outputs, outputs + model.output_count);
  for (size_t done = 0; done < steps; ++done) {
    if (!run(given.data(), made.data())) return done;
    for (size_t i = 0; i < given.size(); ++i)
      given[i] = static_cast<const std::byte*>(given[i]) + model.inputs[i].bytes;
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte*>(made[i]) + model.outputs[i].bytes;
  }
  return steps;
}

void State::save(std::span<std::byte> saved) const {
  internal_check(saved.size() == saved_bytes(), "a saved state has {} bytes", saved.size());
  step_->model().save(memory_.get(), saved.data());
}

void State::restore(std::span<std::byte> saved) {
  const Model& model = step_->model();
  std::memcpy(saved.data(), &model.fingerprint, sizeof(model.fingerprint));
  internal_check(model.restore(memory_.get(), saved.data(), saved.size()) == 0, "a saved state has {} bytes",
                 saved.size());
}

}  // namespace weft::resident
