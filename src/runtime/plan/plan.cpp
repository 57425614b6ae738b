#include "runtime/plan/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/target.h"

namespace weft::runtime {
namespace {

/// The factor times the values; none if that overflows. A factor of 0 gives 0, even if the others overflow.
std::optional<int64_t> product(const DimExpr& dim, const std::vector<int64_t>& values) {
  int64_t result = dim.factor;
  bool overflow = false;
  for (int64_t symbol : dim.symbols) {
    const int64_t value = values[static_cast<size_t>(symbol)];
    if (value == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(result, value, &result);
  }
  if (overflow) return std::nullopt;
  return result;
}

}  // namespace

int64_t DimExpr::evaluate(const std::vector<int64_t>& values) const {
  std::optional<int64_t> result = product(*this, values);
  check(result.has_value(), "weft: a size exceeds 2^63");
  return *result;
}

int64_t estimate(const std::vector<DimExpr>& terms, const std::vector<int64_t>& values) {
  int64_t sum = 0;
  for (const DimExpr& term : terms)
    if (__builtin_add_overflow(sum, product(term, values).value_or(INT64_MAX), &sum)) return INT64_MAX;
  return sum;
}

std::vector<int64_t> values_of(const Plan& plan, const std::vector<int64_t>& symbols) {
  std::vector<int64_t> values(symbols.begin(), symbols.begin() + std::ssize(plan.symbols));
  for (const DerivedSize& derived : plan.derived) {
    int64_t sum = 0;
    for (const DimExpr& term : derived.terms)
      check(!__builtin_add_overflow(sum, term.evaluate(values), &sum), "weft: a size exceeds 2^63");
    values.push_back(sum / derived.divisor - (sum % derived.divisor < 0));
  }
  for (const SizeCheck& each : plan.checks)
    check(each.size.evaluate(values) >= 0, "weft: the size {} is negative", each.name);
  return values;
}

std::vector<Life> lives(const Plan& plan, StageOrder order) {
  std::vector<Life> all;
  for (const BufferPlan& buffer : plan.buffers) all.push_back({buffer.first, buffer.last});
  if (order == StageOrder::kInTurn) return all;
  for (const StagePlan& scan : plan.stages)
    for (const StagePlan::Window& window : scan.windows)
      for (int64_t buffer : window.reads) {
        Life& life = all[static_cast<size_t>(buffer)];
        life.last = std::max(life.last, scan.index);
      }
  if (order == StageOrder::kWindows) return all;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const std::vector<int64_t>& scans = plan.stages[i].side_by_side.scans;
    if (scans.empty()) continue;
    const Life group{plan.stages[i].index, plan.stages[i + static_cast<size_t>(scans.back())].index};
    for (Life& life : all)
      if (life.meets(group)) life = {std::min(life.first, group.first), std::max(life.last, group.last)};
  }
  return all;
}

int64_t padded(int64_t bytes) { return (bytes + target::kCacheLine - 1) / target::kCacheLine * target::kCacheLine; }

int64_t bytes_of(const BufferPlan& buffer, const std::vector<int64_t>& symbol_values) {
  return buffer.elements.evaluate(symbol_values) * buffer.element_size;
}

int64_t instance_bytes(const BufferPlan& buffer, const std::vector<int64_t>& symbol_values) {
  int64_t bytes = 0;
  check(!__builtin_mul_overflow(buffer.elements.evaluate(symbol_values), buffer.element_size, &bytes) &&
            bytes <= INT64_MAX / 4,
        "weft: the size of '{}' exceeds 2^61 bytes", buffer.name);
  return padded(bytes);
}

int64_t instances(const BufferPlan& buffer, const std::vector<int64_t>& members) {
  if (buffer.copies_a_member == 0 || members.empty()) return buffer.copies;
  return buffer.copies + buffer.copies_a_member * (members[static_cast<size_t>(buffer.first)] - 1);
}

bool ControlPlan::operator==(const ControlPlan& other) const = default;

}  // namespace weft::runtime
