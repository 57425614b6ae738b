#include "record/traits.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/fork.h"
#include "record/home.h"
#include "record/meta/result_shapes.h"
#include "record/recording.h"

namespace weft::record {

namespace {

using c10::DispatchKey;
using c10::OperatorHandle;

/// The key by which factories reach the recorder: they have no recorded tensor among their arguments. The key stands
/// above autograd, and above BackendSelect, which would send a factory straight to the CPU's kernels.
constexpr DispatchKey kAboveAll = DispatchKey::TESTING_ONLY_GenericMode;

struct Shared {
  std::mutex mutex;
  std::unordered_map<std::string, int64_t> names;
  int64_t next_name = 1;
  std::vector<c10::OperatorName> pending;  ///< operations that are defined, and have no kernel of ours yet
  std::unordered_set<std::string> registered;
  std::unique_ptr<torch::Library> fallthrough;
  std::unordered_map<std::string, std::unique_ptr<torch::Library>> libraries;  ///< by namespace and key
  std::unique_ptr<c10::RegistrationHandleRAII> listening;
  Shared() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Shared& shared = *new Shared();
/// Counts the removals of operations, which make cached traits invalid.
std::atomic<int64_t> generation{0};
std::atomic<bool> has_pending{true};
std::atomic<Otherwise> otherwise_now{nullptr};

std::string text(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

class Listener : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const OperatorHandle& op) override {
    std::lock_guard lock(shared.mutex);
    shared.pending.push_back(op.operator_name());
    has_pending = true;
  }
  void onOperatorDeregistered(const OperatorHandle&) override {
    std::lock_guard lock(shared.mutex);
    shared.names.clear();  // another operation of the same name must get another number
    ++generation;
  }
};

bool reads_values(const OperatorHandle& op) {
  for (const auto& result : op.schema().returns()) {
    auto kind = result.type()->kind();
    if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return true;
  }
  return op.hasTag(at::Tag::dynamic_output_shape);
}

bool takes_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  if (auto optional = type->cast<c10::OptionalType>()) return takes_tensors(optional->getElementType());
  if (auto list = type->cast<c10::ListType>()) return takes_tensors(list->getElementType());
  return false;
}

/// The argument that has one of these alias sets; the last if several have, -1 if none has.
int argument_of(const c10::FunctionSchema& schema, const c10::AliasInfo& sets) {
  int found = -1;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr) continue;
    for (const auto& set : alias->beforeSets())
      if (sets.beforeSets().count(set) != 0) found = static_cast<int>(i);
  }
  return found;
}

/// The operation with that name, if its arguments have the same types as those of `op`. (pow.Scalar takes a tensor
/// where pow_.Scalar takes a number.)
std::optional<OperatorHandle> with_arguments_of(const OperatorHandle& op, const c10::OperatorName& name) {
  auto found = c10::Dispatcher::singleton().findSchema(name);
  if (!found || found->schema().is_mutable() || found->schema().returns().size() != 1) return std::nullopt;
  const auto &wanted = op.schema().arguments(), &given = found->schema().arguments();
  const auto same = [](const auto& a, const auto& b) { return *a.type() == *b.type(); };
  return std::ranges::equal(wanted, given, same) ? found : std::nullopt;
}

Traits make(const OperatorHandle& op) {
  Traits traits;
  {
    std::lock_guard lock(shared.mutex);
    auto [known, is_new] = shared.names.emplace(text(op.operator_name()), shared.next_name);
    shared.next_name += is_new ? 1 : 0;
    traits.name = known->second;
  }
  const auto& schema = op.schema();
  traits.reads_values = reads_values(op);
  traits.is_lift = schema.name() == "aten::lift_fresh" || schema.name() == "aten::lift";
  traits.draws = op.hasTag(at::Tag::nondeterministic_seeded);
  traits.takes_tensors = false;
  for (const auto& argument : schema.arguments()) {
    traits.writes.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
    traits.takes_tensors |= takes_tensors(argument.type());
  }
  for (const auto& result : schema.returns()) {
    auto& found = traits.returns.emplace_back();
    if (result.alias_info() == nullptr) continue;
    found.is_argument = result.alias_info()->isWrite();
    found.argument = argument_of(schema, *result.alias_info());
    for (const c10::AliasInfo& each : result.alias_info()->containedTypes())
      found.elements_of = std::max(found.elements_of, argument_of(schema, each));
  }
  return traits;
}

void boxed(const OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  Recording* recording = Recording::current();
  if (recording == nullptr)
    if (const Otherwise otherwise = otherwise_now.load(std::memory_order_acquire)) return otherwise(op, *stack);
  TORCH_CHECK(recording != nullptr, op.schema().name(),
              ": a tensor of weft.scan's step was kept after the step had returned; it never had a value");
  recording->call(op, *stack);
}

/// For a factory, or a copy that may go to another device. A copy of a tensor goes to autograd first, which is below
/// this key and then excludes BackendSelect.
void boxed_above_all(const OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const bool takes_tensor = std::ranges::any_of(
      arguments, [](const c10::IValue& argument) { return argument.isTensor() && argument.toTensor().defined(); });
  if (!takes_tensor) return boxed(op, keys, stack);
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKeySet({kAboveAll, DispatchKey::BackendSelect}));
  op.callBoxed(stack);
}

/// The kernel of an operation in place. Functionalisation calls such an operation on Meta tensors to check the
/// arguments. Most of PyTorch's Meta functions for operations in place are in Python and call other operations. The
/// recorder would take these for operations of the recorded function, so the operation is checked here.
void boxed_in_place(const OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::IValue& self = torch::jit::peek(*stack, 0, op.schema().arguments().size());
  if (Recording::current() != nullptr && self.isTensor() && self.toTensor().is_meta()) return store_on_meta(op, *stack);
  op.redispatchBoxed(keys.remove(kAboveAll), stack);
}

torch::Library& library(const std::string& space, DispatchKey key) {
  auto& found = shared.libraries[space + "/" + c10::toString(key)];
  if (found == nullptr) found = std::make_unique<torch::Library>(torch::Library::IMPL, space, key, __FILE__, __LINE__);
  return *found;
}

/// Composite operations are decomposed by the dispatcher. All others are recorded.
void add_kernels(const OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  std::string space = name.substr(0, name.find("::"));
  std::string local = text(op.operator_name()).substr(space.size() + 2);
  bool is_composite = op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  if (space == "prim" || space == "profiler") return;
  if (!is_composite && !op.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) {
    library(space, DispatchKey::PrivateUse1).impl(local.c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed>());
  }
  if (!is_composite && op.hasKernelForDispatchKey(DispatchKey::BackendSelect)) {
    library(space, kAboveAll).impl(local.c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed_above_all>());
  } else if (!is_composite && name.ends_with('_') && can_store_on_meta(op)) {
    library(space, kAboveAll).impl(local.c_str(), torch::CppFunction::makeFromBoxedFunction<&boxed_in_place>());
  }
}

}  // namespace

std::optional<OperatorHandle> out_of_place(const OperatorHandle& op) {
  c10::OperatorName name = op.operator_name();
  if (!name.name.ends_with('_')) return std::nullopt;
  name.name.pop_back();
  if (name.name == "aten::bernoulli" && name.overload_name == "float") name.overload_name = "p";
  if (name.name == "aten::normal") name.name = "aten::normal_functional";
  if (auto found = with_arguments_of(op, name)) return found;
  const std::string overload = name.overload_name;
  for (const std::string& other : {"Tensor_" + overload, std::string()}) {
    name.overload_name = other;
    if (auto found = with_arguments_of(op, name)) return found;
  }
  return std::nullopt;
}

std::vector<OperatorHandle> aten_operations_with(DispatchKey key) {
  std::vector<OperatorHandle> found;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames())
    if (auto op = dispatcher.findSchema(name);
        op && name.name.starts_with("aten::") && op->hasKernelForDispatchKey(key))
      found.push_back(*op);
  return found;
}

int64_t operations_generation() { return generation.load(std::memory_order_acquire); }

void set_otherwise(Otherwise otherwise) { otherwise_now = otherwise; }

bool is_at_home(c10::Device device) {
  return device.is_cpu() || (device.is_privateuseone() && otherwise_now.load(std::memory_order_relaxed) != nullptr);
}

const Traits& traits_of(const OperatorHandle& op) {
  thread_local std::unordered_map<const void*, std::unique_ptr<Traits>> known;
  thread_local int64_t known_generation = 0;
  const int64_t now = operations_generation();
  if (now != known_generation) known.clear(), known_generation = now;
  auto& found = known[&op.operator_name()];
  if (found == nullptr) found = std::make_unique<Traits>(make(op));
  return *found;
}

void register_kernels() {
  if (!has_pending.load(std::memory_order_acquire)) return;
  auto& dispatcher = c10::Dispatcher::singleton();
  {
    static std::mutex once;
    std::lock_guard lock(once);
    if (shared.listening == nullptr) {
      shared.fallthrough = std::make_unique<torch::Library>(torch::Library::IMPL, "_", kAboveAll, __FILE__, __LINE__);
      shared.fallthrough->fallback(torch::CppFunction::makeFallthrough());
      // The listener is told of existing operations, too.
      shared.listening = std::make_unique<c10::RegistrationHandleRAII>(
          dispatcher.addRegistrationListener(std::make_unique<Listener>()));
    }
    std::vector<c10::OperatorName> names;
    {
      std::lock_guard inner(shared.mutex);
      names.swap(shared.pending);
      has_pending = false;
    }
    for (const auto& name : names) {
      auto op = dispatcher.findOp(name);
      if (op && op->hasSchema() && shared.registered.insert(text(name)).second) add_kernels(*op);
    }
  }
}

}  // namespace weft::record
