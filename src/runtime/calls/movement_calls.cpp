// Copies, rows by an index, rows from a place on.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/inline_vector.h"
#include "base/row_range.h"
#include "runtime/calls/calls.h"
#include "runtime/kernels/movement.h"

namespace weft::runtime {
namespace {

// A call may be made in every step of a loop: nothing below allocates.

/// Copies a part to the elements of the destination from `start` on. Returns the start of the next part. At a size of 0
/// the part's other numbers are not evaluated, since they may overflow, and `start` is returned: either all parts are
/// empty, or the next part has the same start.
int64_t copy(const CopyCall& call, const CopyCall::Part& part, int64_t start, const CallContext& context) {
  InlineVector<CopyDim, kMaxCopyDims> dims;
  for (const CopyCall::Dim& dim : part.dims) {
    const int64_t size = dim.size.evaluate(context.symbols);
    if (size == 0) return start;
    dims.push_back({size, 0, 0});
  }
  int64_t source = part.source_start.evaluate(context.symbols);
  for (size_t i = 0; i < dims.size(); ++i) {
    const CopyCall::Dim& dim = part.dims[i];
    const int64_t step = dim.source_step.evaluate(context.symbols);
    if (dim.reversed) source += (dims[i].size - 1) * step;
    dims[i].source_step = dim.reversed ? -step : step;
    dims[i].destination_step = dim.destination_step.evaluate(context.symbols);
  }
  const StridedCopy strided(dims, call.element_size);
  const Share share = context.share(strided.units());
  if (share.first < share.last)
    strided.run(context.at(part.source, source * call.element_size),
                context.at(call.destination, start * call.element_size), share.first, share.last);
  return start + part.length.evaluate(context.symbols);
}

RowIndex index_of(const IndexPlace& index, const CallContext& context) {
  return {context.at(index.buffer), index.count.evaluate(context.symbols), index.is_64_bit};
}

bool complain(std::optional<int64_t> bad, int64_t rows, std::string& error) {
  if (bad) error = fmt::format("index {} is out of bounds for dimension 0 with size {}", *bad, rows);
  return !bad;
}

template <typename T>
std::optional<int64_t> add_rows(const ScatterAddCall& call, const CallContext& context, int64_t all_rows) {
  const int64_t columns = call.columns.evaluate(context.symbols);
  Share rows{0, all_rows}, part{0, columns};
  if (columns >= 16 * context.threads)
    part = context.share(columns);
  else
    rows = context.share(all_rows);
  return scatter_add_rows<T>(index_of(call.index, context), reinterpret_cast<const T*>(context.at(call.updates)),
                             reinterpret_cast<T*>(context.at(call.result)), all_rows, columns, rows.first, rows.last,
                             part.first, part.last);
}

/// RowBlocks at a call.
class Blocks {
 public:
  Blocks(const RowBlocks& blocks, const CallContext& context)
      : blocks_(blocks),
        context_(context),
        outer_(blocks.outer.evaluate(context.symbols)),
        inner_(blocks.inner.evaluate(context.symbols)) {}

  int64_t rows(const RowsPlace& place) const { return place.rows.evaluate(context_.symbols); }

  /// Whether `count` rows from `start` on are there.
  bool fits(const char* op, int64_t start, int64_t count, int64_t rows, std::string& error) const {
    error = row_range_misfit(op, start, count, blocks_.dim, rows);
    return error.empty();
  }

  /// Copies a member's share of `count` rows of each block. Each side has `rows` rows a block, and the copy begins at
  /// row `first`.
  struct Side {
    int64_t buffer, rows, first;
  };
  void copy(const Side& from, const Side& to, int64_t count) const {
    if (outer_ == 0 || inner_ == 0 || count == 0) return;
    const CopyDim dims[] = {{outer_, from.rows * inner_, to.rows * inner_}, {count * inner_, 1, 1}};
    const StridedCopy strided(dims, blocks_.element_size);
    const Share share = context_.share(strided.units());
    strided.run(context_.at(from.buffer, from.first * inner_ * blocks_.element_size),
                context_.at(to.buffer, to.first * inner_ * blocks_.element_size), share.first, share.last);
  }

 private:
  const RowBlocks& blocks_;
  const CallContext& context_;
  int64_t outer_, inner_;
};

int64_t number_at(int64_t buffer, const CallContext& context) {
  return *reinterpret_cast<const int64_t*>(context.at(buffer));
}

}  // namespace

bool run(const CopyCall& call, const CallContext& context, std::string&) {
  int64_t start = 0;
  for (const CopyCall::Part& part : call.parts) start = copy(call, part, start, context);
  return true;
}

/// A member writes the zeros of the outer rows in its share. The rows of the source are shared out in the same way.
bool run(const PadCall& call, const CallContext& context, std::string&) {
  const int64_t rows = call.rows.evaluate(context.symbols);
  const int64_t row = rows == 0 ? 0 : call.row.evaluate(context.symbols) * call.element_size;
  if (row == 0) return true;
  const int64_t low = call.low.evaluate(context.symbols) * call.element_size;
  const int64_t taken = call.taken.evaluate(context.symbols) * call.element_size;
  const Share share = context.share(rows);
  for (int64_t i = share.first; i < share.last; ++i) {
    char* target = context.at(call.destination, i * row);
    std::memset(target, 0, static_cast<size_t>(low));
    if (taken > 0) std::memcpy(target + low, context.at(call.source, i * taken), static_cast<size_t>(taken));
    std::memset(target + low + taken, 0, static_cast<size_t>(row - low - taken));
  }
  return true;
}

bool run(const GatherCall& call, const CallContext& context, std::string& error) {
  const int64_t rows = call.rows.evaluate(context.symbols);
  const RowIndex index = index_of(call.index, context);
  const Share share = context.share(index.count);
  return complain(gather_rows(context.at(call.table), rows, call.columns.evaluate(context.symbols) * call.element_size,
                              index, context.at(call.result), share.first, share.last),
                  rows, error);
}

bool run(const ScatterCall& call, const CallContext& context, std::string& error) {
  const int64_t rows = call.rows.evaluate(context.symbols);
  const Share share = context.share(rows);
  return complain(scatter_rows(context.at(call.table), index_of(call.index, context), context.at(call.updates),
                               context.at(call.result), rows,
                               call.columns.evaluate(context.symbols) * call.element_size, share.first, share.last),
                  rows, error);
}

bool run(const ScatterAddCall& call, const CallContext& context, std::string& error) {
  const int64_t rows = call.rows.evaluate(context.symbols);
  const auto bad =
      call.dtype == DType::kF32 ? add_rows<float>(call, context, rows) : add_rows<double>(call, context, rows);
  return complain(bad, rows, error);
}

bool run(const DynamicSliceCall& call, const CallContext& context, std::string& error) {
  const Blocks blocks(call.blocks, context);
  const int64_t start = number_at(call.start, context);
  const int64_t all = blocks.rows(call.source), count = blocks.rows(call.result);
  if (!blocks.fits(DynamicSliceCall::kName, start, count, all, error)) return false;
  blocks.copy({call.source.buffer, all, start}, {call.result.buffer, count, 0}, count);
  return true;
}

bool run(const DynamicUpdateCall& call, const CallContext& context, std::string& error) {
  const Blocks blocks(call.blocks, context);
  const int64_t start = number_at(call.start, context);
  const int64_t all = blocks.rows(call.source), count = blocks.rows(call.update);
  if (!blocks.fits(DynamicUpdateCall::kName, start, count, all, error)) return false;
  blocks.copy({call.update.buffer, count, 0}, {call.result, all, start}, count);
  if (context.at(call.source.buffer) == context.at(call.result)) return true;
  const int64_t behind = start + count;
  blocks.copy({call.source.buffer, all, 0}, {call.result, all, 0}, start);
  blocks.copy({call.source.buffer, all, behind}, {call.result, all, behind}, all - behind);
  return true;
}

}  // namespace weft::runtime
