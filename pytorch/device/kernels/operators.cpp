#include "device/kernels/operators.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/fork.h"

namespace weft::device {
namespace {

using Slot = Operator::Slot;
using Kind = Operator::Kind;

Slot slot_of(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) return slot_of(optional->getElementType());
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return Slot::kTensor;
    case c10::TypeKind::DeviceObjType:
      return Slot::kDevice;
    case c10::TypeKind::GeneratorType:
      return Slot::kGenerator;
    case c10::TypeKind::ListType:
      return slot_of(type->castRaw<c10::ListType>()->getElementType()) == Slot::kTensor ? Slot::kTensors : Slot::kPlain;
    default:
      return Slot::kPlain;
  }
}

/// Whether the arguments of `op` are those of `plain`, followed only by tensors to write results to.
bool takes_the_same(const c10::FunctionSchema& op, const c10::FunctionSchema& plain) {
  const auto &many = op.arguments(), &few = plain.arguments();
  if (plain.is_mutable() || few.size() > many.size()) return false;
  for (size_t i = 0; i < few.size(); ++i)
    if (few[i].name() != many[i].name() || *few[i].real_type() != *many[i].real_type()) return false;
  for (size_t i = few.size(); i < many.size(); ++i)
    if (!many[i].is_out()) return false;
  return true;
}

/// Overloads by name: `aten::add` has Tensor, Scalar, out.
const std::unordered_multimap<std::string, c10::OperatorName>& overloads() {
  thread_local std::unordered_multimap<std::string, c10::OperatorName> known;
  if (known.empty())
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) known.emplace(name.name, name);
  return known;
}

/// add.Tensor for add_.Tensor and add.out.
std::optional<c10::OperatorHandle> plain_variant(const Operator& op) {
  std::string name = op.schema().name();
  if (name.ends_with('_')) name.pop_back();
  auto [first, last] = overloads().equal_range(name);
  for (auto each = first; each != last; ++each) {
    auto found = c10::Dispatcher::singleton().findSchema(each->second);
    if (!found || !takes_the_same(op.schema(), found->schema())) continue;
    size_t written = 0;
    for (bool writes : op.traits.writes) written += writes ? 1 : 0;
    // A variant with views as results would show memory that the operation doesn't have.
    bool gives_views = false;
    for (const auto& result : found->schema().returns()) gives_views |= result.alias_info() != nullptr;
    if (!gives_views && found->schema().returns().size() == written) return found;
  }
  return std::nullopt;
}

bool writes(const Operator& op) {
  for (bool one : op.traits.writes)
    if (one) return true;
  return false;
}

bool gives_views(const Operator& op) {
  for (const auto& result : op.traits.returns)
    if (result.argument < 0 || result.is_argument) return false;
  return !op.traits.returns.empty();
}

/// Whether the operation is composed of others. Not every such operation is registered as composite.
bool is_composite(const Operator& op) {
  const std::string& name = op.schema().name();
  if (!op.handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) return false;
  return name.starts_with("aten::_foreach_") || name == "aten::resize_as_";
}

Kind kind_of(const Operator& op) {
  if (op.function != nullptr) return Kind::kOwn;
  if (is_composite(op)) return Kind::kComposite;
  if (op.handle.hasTag(at::Tag::inplace_view)) return Kind::kViewInPlace;
  if (op.handle.hasTag(at::Tag::nondeterministic_seeded)) return Kind::kDraws;
  if (op.traits.reads_values || op.handle.hasTag(at::Tag::data_dependent_output)) return Kind::kReads;
  if (writes(op)) return Kind::kWrites;
  if (op.traits.returns.empty()) return Kind::kReads;  // checks something
  if (gives_views(op)) return Kind::kView;
  return Kind::kRecorded;
}

/// Operations whose CPU kernels differ from their Meta kernels. CPU kernels: bags other than means have no sizes; norms
/// that use running statistics save none, and other norms save them in bfloat16 if the input is bfloat16; matrices from
/// LAPACK are column-major.
constexpr std::string_view kDifferFromMeta[] = {
    "aten::native_batch_norm",
    "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_no_training",
    "aten::_native_batch_norm_legit_functional",
    "aten::_batch_norm_with_update",
    "aten::_batch_norm_with_update_functional",
    "aten::_batch_norm_no_update",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    "aten::_linalg_svd",
    "aten::linalg_eig",
    "aten::_fft_r2c",
    "aten::_fft_c2r",
    "aten::_fft_c2c",
    "aten::nonzero_static",
    "aten::max_unpool2d",
    "aten::max_unpool3d",
};

/// Marks lists in which each tensor is a view of an argument, such as unbind's and split's.
void see_lists_of_views(Operator& op) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < op.traits.returns.size(); ++i) {
    const auto& result = op.schema().returns()[i];
    const bool is_list = result.type()->kind() == c10::TypeKind::ListType;
    if (!is_list || result.alias_info() == nullptr || result.alias_info()->isWrite()) continue;
    for (size_t argument = 0; argument < arguments.size(); ++argument)
      if (arguments[argument].alias_info() != nullptr &&
          arguments[argument].type()->kind() == c10::TypeKind::TensorType)
        op.traits.returns[i].argument = static_cast<int>(argument);
  }
}

Operator make(const c10::OperatorHandle& handle) {
  Operator op{.handle = handle, .traits = record::traits_of(handle), .plain = {}, .slots = {}};
  see_lists_of_views(op);
  // A view although its schema does not say so: composite operations write their result through it.
  if (handle.schema().name() == "aten::_unsafe_view" && handle.schema().overload_name().empty())
    op.traits.returns[0].argument = 0;
  for (const auto& argument : handle.schema().arguments()) op.slots.push_back(slot_of(argument.real_type()));
  if (handle.schema().name() == "weft::call") op.slots[0] = Slot::kProgram;
  for (size_t i = 0; i < op.slots.size(); ++i) {
    const bool is_out = handle.schema().arguments()[i].is_out();
    op.takes_device |= op.slots[i] == Slot::kDevice;
    op.is_made_of_numbers &= is_out || (op.slots[i] != Slot::kTensor && op.slots[i] != Slot::kTensors);
  }
  op.function = own_function(handle.schema().name() + "." + handle.schema().overload_name());
  op.kind = kind_of(op);
  if (op.kind == Kind::kWrites) op.plain = plain_variant(op);
  const std::string& name = handle.schema().name();
  const std::string& overload = handle.schema().overload_name();
  op.differs_from_meta = (overload.empty() || overload == "no_stats") &&
                         std::ranges::find(kDifferFromMeta, name) != std::end(kDifferFromMeta);
  op.is_pointwise = handle.hasTag(at::Tag::pointwise);
  op.takes_any_device = name == "aten::index" || name == "aten::index_put" || name == "aten::index_put_" ||
                        name == "aten::_index_put_impl_" || name == "aten::_unsafe_index" || name == "weft::call";
  return op;
}

/// All operations that any thread has looked up, since nodes outlive threads. Operations that PyTorch removes stay
/// here.
struct OperatorTable {
  std::mutex mutex;
  std::deque<Operator> operators;
  std::unordered_map<const void*, const Operator*> by_name;
  int64_t generation = 0;
  OperatorTable() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h).
OperatorTable& operators_seen = *new OperatorTable();

const Operator& shared_operator(const c10::OperatorHandle& handle, int64_t generation) {
  {
    std::lock_guard lock(operators_seen.mutex);
    if (operators_seen.generation != generation) operators_seen.by_name.clear(), operators_seen.generation = generation;
    if (auto found = operators_seen.by_name.find(&handle.operator_name()); found != operators_seen.by_name.end())
      return *found->second;
  }
  Operator made = make(handle);
  std::lock_guard lock(operators_seen.mutex);
  const Operator*& found = operators_seen.by_name[&handle.operator_name()];
  if (found == nullptr) found = &operators_seen.operators.emplace_back(std::move(made));
  return *found;
}

}  // namespace

namespace {

/// A thread's cache of operations by the address of their name. An address has one place in the table. An operation
/// takes its place from an earlier operation that had the same place.
struct OperatorsAtHand {
  static constexpr size_t kPlaces = 1U << 10U;
  struct Place {
    const void* name = nullptr;
    const Operator* op = nullptr;
  };
  int64_t generation = 0;
  std::vector<Place> places{kPlaces};

  Place& at(const void* name) {
    return places[((reinterpret_cast<uintptr_t>(name) >> 4U) * 0x9E3779B97F4A7C15U) >> 54U];
  }
};

}  // namespace

const Operator& operator_of(const c10::OperatorHandle& handle) {
  thread_local OperatorsAtHand at_hand;
  const int64_t generation = record::operations_generation();
  if (generation != at_hand.generation) at_hand = {.generation = generation};
  OperatorsAtHand::Place& place = at_hand.at(&handle.operator_name());
  if (place.name != &handle.operator_name()) place = {&handle.operator_name(), &shared_operator(handle, generation)};
  return *place.op;
}

const Operator& operator_named(const char* name, const char* overload) {
  return operator_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

}  // namespace weft::device
