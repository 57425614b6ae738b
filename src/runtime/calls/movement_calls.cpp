// Copies, and rows by an index.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/inline_vector.h"
#include "runtime/calls/calls.h"
#include "runtime/movement.h"

namespace weft::runtime {
namespace {

// A call may be made in every step of a loop: nothing below allocates.

/// Copies a part to the elements of the destination from `start` on. Returns where the next part starts. Of a part
/// without elements nothing but the sizes is evaluated (what its other dims come to may overflow): then all parts are
/// without, or the next one starts where this does.
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

}  // namespace

bool run(const CopyCall& call, const CallContext& context, std::string&) {
  int64_t start = 0;
  for (const CopyCall::Part& part : call.parts) start = copy(call, part, start, context);
  return true;
}

/// Zeros are written by whoever has them in its share of the outer rows; the rows themselves are copied likewise.
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

}  // namespace weft::runtime
