#include "override/dynamic_weights.h"

#include <ATen/ops/full.h>
#include <ATen/ops/int_repr.h>
#include <ATen/ops/q_per_channel_axis.h>
#include <ATen/ops/q_per_channel_scales.h>
#include <ATen/ops/q_per_channel_zero_points.h>

#include <typeinfo>
#include <unordered_map>

#include "operator/program_table.h"

namespace weft::override_kernels {
namespace {

using at::Tensor;
using Packed = c10::intrusive_ptr<LinearPackedParamsBase>;

struct Kept {
  c10::weak_intrusive_ptr<LinearPackedParamsBase> packed;
  std::optional<DynamicLinear> linear;  ///< without its bias, which can be set
};

/// Never destroyed: calls may come while the process ends. Guarded by torch_operator::lookup_mutex().
auto& linears = *new std::unordered_map<const void*, Kept>;

std::optional<DynamicLinear> unpack(LinearPackedParamsBase& packed) {
  const Tensor weight = std::get<0>(packed.unpack());
  if (weight.scalar_type() != at::kQInt8 || weight.dim() != 2) return std::nullopt;
  DynamicLinear made;
  if (weight.qscheme() == at::kPerTensorAffine) {
    if (weight.q_zero_point() != 0) return std::nullopt;
    made.scales = at::full({weight.size(0)}, weight.q_scale(), at::kFloat);
  } else if (weight.qscheme() == at::kPerChannelAffine && at::q_per_channel_axis(weight) == 0) {
    if (at::q_per_channel_zero_points(weight).count_nonzero().item<int64_t>() != 0) return std::nullopt;
    made.scales = at::q_per_channel_scales(weight).to(at::kFloat).contiguous();
  } else {
    return std::nullopt;
  }
  made.rows = at::int_repr(weight).contiguous();
  made.ignores_range = std::string_view(typeid(packed).name()).find("Qnnp") != std::string_view::npos;
  return made;
}

}  // namespace

std::optional<DynamicLinear> unpacked(const Packed& packed) {
  std::optional<DynamicLinear> found;
  bool is_known = false;
  {
    std::lock_guard lock(torch_operator::lookup_mutex());
    if (auto entry = linears.find(packed.get()); entry != linears.end() && !entry->second.packed.expired()) {
      found = entry->second.linear;
      is_known = true;
    }
  }
  if (!is_known) {
    found = unpack(*packed);
    std::lock_guard lock(torch_operator::lookup_mutex());
    std::erase_if(linears, [](const auto& entry) { return entry.second.packed.expired(); });
    linears.insert_or_assign(packed.get(), Kept{c10::weak_intrusive_ptr<LinearPackedParamsBase>(packed), found});
  }
  if (found) found->bias = packed->bias();
  return found;
}

std::optional<DynamicCell> cell_of(const c10::IValue& params) {
  torch::jit::Function* get_state = params.type()->expect<c10::ClassType>()->findMethod("__getstate__");
  if (get_state == nullptr) return std::nullopt;
  const auto state = (*get_state)({params}).toTuple()->elements().vec();
  if (state.size() != 5 || state[0].toStringRef() != "quantized_dynamic") return std::nullopt;
  const c10::List<int64_t> numbers = state[3].toIntList();
  const c10::List<c10::IValue> packed = state[4].toList();
  if (packed.size() != 2) return std::nullopt;
  auto linear = [&](size_t i) { return packed.get(i).toCustomClass<LinearPackedParamsBase>(); };
  return DynamicCell{linear(0), linear(1), numbers.size() > 0 && numbers[0] != 0};
}

}  // namespace weft::override_kernels
