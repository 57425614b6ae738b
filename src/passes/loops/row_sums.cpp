#include "passes/loops/row_sums.h"

namespace weft::passes {

using ir::ValueId;

ValueId RowSums::sum(ValueId value, const std::vector<int64_t>& dims) {
  const DType dtype = program_.type(value).dtype;
  return after_.cast(after_.reduce_sum(carried(value), dims), dtype);
}

ValueId RowSums::carried(ValueId value) {
  if (const auto known = sums_.find(value); known != sums_.end()) return known->second;
  ir::Type type = program_.type(value);
  if (size_of(type.dtype) < size_of(DType::kF32)) type.dtype = DType::kF32;
  ir::Builder inside(program_, ops_);
  ScanParts::Carry carry{};
  carry.init = before_.constant(0, type);
  carry.arg = program_.new_value(type);
  carry.out = inside.add(carry.arg, inside.cast(value, type.dtype));
  carry.result = program_.new_value(type);
  carries_.push_back(carry);
  return sums_[value] = carry.result;
}

void RowSums::add_to(ScanParts& scan) {
  scan.carries.insert(scan.carries.end(), carries_.begin(), carries_.end());
  std::ranges::move(ops_.ops, std::back_inserter(scan.ops));
}

}  // namespace weft::passes
