#include "engine/extern_callback.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/prepared_extern.h"
#include "base/small_array.h"
#include "ir/traits.h"

namespace weft::engine {
namespace {

using ir::ValueId;
using runtime::CallContext;

/// Calls what an extern op names. Which buffers hold its operands and results, and their types, are found once.
class ExternCallback {
 public:
  ExternCallback(const planning::Schedule& schedule, const ir::Op& op)
      : call_(op.attr<std::string>("call")), sizes_(schedule.plan.symbols), operands_(op.operands.size()) {
    for (const ValueId operand : op.operands) add(schedule, operand);
    for (const ValueId result : op.results) add(schedule, result);
  }
  ~ExternCallback() { delete prepared_.load(std::memory_order_acquire); }
  ExternCallback(const ExternCallback&) = delete;
  ExternCallback& operator=(const ExternCallback&) = delete;

  void run(const CallContext& context) const {
    SmallArray<int64_t, 64> sizes(dims_.size());
    evaluate(context.symbols, sizes.data());
    SmallArray<ExternTensor, 12> tensors(tensors_.size());
    const int64_t* next = sizes.data();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto& [dtype, rank, buffer] = tensors_[i];
      tensors.data()[i] = {dtype, {next, rank}, context.buffers[buffer]};
      next += rank;
    }
    const std::span<const ExternTensor> all(tensors.data(), tensors.size());
    const PreparedExtern* prepared = this->prepared();
    if (prepared != nullptr)
      prepared->run(all.first(operands_), all.subspan(operands_));
    else
      run_extern(call_, all.first(operands_), all.subspan(operands_));
  }

 private:
  struct Tensor {
    DType dtype;
    size_t rank;
    int64_t buffer;
  };

  void add(const planning::Schedule& schedule, ValueId value) {
    const ir::Type& type = schedule.program->type(value);
    tensors_.push_back({type.dtype, type.shape.size(), schedule.buffer.at(value)});
    for (const ir::Dim& dim : type.shape) dims_.push_back(sizes_.add(dim));
  }

  /// The sizes of all dims. `symbols` begins with the values of the plan's symbols.
  void evaluate(const std::vector<int64_t>& symbols, int64_t* sizes) const {
    std::vector<int64_t> derived;
    if (!sizes_.derived().empty()) {
      derived.assign(symbols.begin(), symbols.begin() + std::ssize(sizes_.symbols()));
      check(sizes_.derive<ir::PlainSizes>(derived), "extern: a size of {} exceeds 2^63", extern_name(call_));
    }
    const std::vector<int64_t>& values = derived.empty() ? symbols : derived;
    for (const ir::SizeTable::Size& dim : dims_) {
      const auto size = ir::SizeTable::evaluate<ir::PlainSizes>(dim, values);
      check(size.has_value(), "extern: a size of {} exceeds 2^63", extern_name(call_));
      *sizes++ = *size;
    }
  }

  /// Null if nobody prepares calls. Two threads may prepare it at once; the first one's is kept.
  const PreparedExtern* prepared() const {
    const PreparedExtern* kept = prepared_.load(std::memory_order_acquire);
    if (kept != nullptr) return kept;
    std::unique_ptr<const PreparedExtern> fresh = prepare_extern(call_);
    if (fresh == nullptr || !prepared_.compare_exchange_strong(kept, fresh.get())) return kept;
    return fresh.release();
  }

  std::string call_;
  ir::SizeTable sizes_;
  size_t operands_;
  std::vector<Tensor> tensors_;  ///< operands, then results
  std::vector<ir::SizeTable::Size> dims_;
  mutable std::atomic<const PreparedExtern*> prepared_{nullptr};
};

bool all_have_buffers(const planning::Schedule& schedule, const std::vector<ValueId>& values) {
  return std::ranges::all_of(values, [&](ValueId value) { return schedule.buffer.contains(value); });
}

}  // namespace

runtime::CallFunction make_extern_callback(const planning::Schedule& schedule, const ir::Op& op) {
  if (!ir::traits_of(op.code).calls_out) return nullptr;
  if (!all_have_buffers(schedule, op.operands) || !all_have_buffers(schedule, op.results)) return nullptr;
  auto callback = std::make_shared<const ExternCallback>(schedule, op);
  return [callback = std::move(callback)](const CallContext& context, std::string&) {
    if (context.thread == 0) callback->run(context);
    return true;
  };
}

}  // namespace weft::engine
