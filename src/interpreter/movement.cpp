#include <algorithm>
#include <cstring>

#include "base/row_range.h"
#include "interpreter/evaluator.h"
#include "interpreter/kernels.h"
#include "interpreter/numeric.h"

// Ops that move elements without computing, nearly all of them as one strided copy.

namespace weft::interpreter {
namespace {

using Sizes = std::vector<int64_t>;

/// Row-major strides, in elements. Zeros for a tensor without elements, since the product of its other dims may
/// overflow.
Sizes strides_of(std::span<const int64_t> sizes) {
  Sizes strides(sizes.size());
  if (count_of(sizes) == 0) return strides;
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) strides[i] = stride;
  return strides;
}

/// Both sides of a strided copy; strides in elements, `from` may repeat (0) or run backwards.
template <typename T>
struct StridedCopy {
  std::span<const int64_t> sizes;
  std::span<const int64_t> from_strides, to_strides;

  void run(const T* from, T* to, size_t dim = 0) const {
    if (dim == sizes.size()) {
      *to = *from;
      return;
    }
    int64_t n = sizes[dim];
    int64_t f = from_strides[dim];
    int64_t t = to_strides[dim];
    if (dim + 1 < sizes.size()) {
      for (int64_t i = 0; i < n; ++i) run(from + i * f, to + i * t, dim + 1);
    } else if (f == 1 && t == 1) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * t] = from[i * f];
    }
  }
};

/// One side of strided_copy: its strides and offset, in elements.
struct Side {
  Sizes strides;
  int64_t offset = 0;
};

void strided_copy(DType dtype, std::span<const int64_t> sizes, const void* from, const Side& from_side, void* to,
                  const Side& to_side) {
  if (count_of(sizes) == 0) return;
  auto run = [&]<typename T>(T) {
    StridedCopy<T>{sizes, from_side.strides, to_side.strides}.run(static_cast<const T*>(from) + from_side.offset,
                                                                  static_cast<T*>(to) + to_side.offset);
  };
  switch (size_of(dtype)) {
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    default:
      return run(uint64_t{});
  }
}

/// The result is the operand seen with other strides.
void copy_from(const Call& call, const Side& from) {
  const MutableView& out = call.results[0];
  strided_copy(out.dtype, out.sizes, call.operands[0].data, from, out.data, {strides_of(out.sizes)});
}

size_t dim_of(const Call& call) { return static_cast<size_t>(call.op.attr<int64_t>("dim")); }

template <typename T>
int64_t checked_index(T index, int64_t size, const char* op) {
  auto i = static_cast<int64_t>(index);
  check(i >= 0 && i < size, "{}: index {} is outside 0..{}", op, i, size - 1);
  return i;
}

/// The place where `count` rows along `dim` of the first operand start. User's error if they don't fit.
int64_t checked_start(const Call& call, const void* start, int64_t count) {
  const auto first = *static_cast<const int64_t*>(start);
  const std::string misfit = row_range_misfit(info(call.op.code).name, first, count, call.op.attr<int64_t>("dim"),
                                              call.operands[0].sizes[dim_of(call)]);
  check(misfit.empty(), "{}", misfit);
  return first;
}

}  // namespace

namespace kernels {

void broadcast(const Call& call) {
  const auto& dims = call.op.attr<std::vector<int64_t>>("dims");
  Sizes strides = strides_of(call.operands[0].sizes);
  Side from{Sizes(call.results[0].sizes.size(), 0)};
  for (size_t i = 0; i < dims.size(); ++i) from.strides[static_cast<size_t>(dims[i])] = strides[i];
  copy_from(call, from);
}

void reshape(const Call& call) { copy(call); }

void transpose(const Call& call) {
  Sizes strides = strides_of(call.operands[0].sizes);
  Side from;
  for (int64_t dim : call.op.attr<std::vector<int64_t>>("perm"))
    from.strides.push_back(strides[static_cast<size_t>(dim)]);
  copy_from(call, from);
}

void slice(const Call& call) {
  Side from{strides_of(call.operands[0].sizes)};
  from.offset = call.evaluator.value_of(size_attr(call.op, "start")) * from.strides[dim_of(call)];
  copy_from(call, from);
}

void reverse(const Call& call) {
  Side from{strides_of(call.operands[0].sizes)};
  int64_t& stride = from.strides[dim_of(call)];
  from.offset = (call.operands[0].sizes[dim_of(call)] - 1) * stride;
  stride = -stride;
  copy_from(call, from);
}

void pad(const Call& call) {
  const MutableView& out = call.results[0];
  std::fill_n(call.out<char>(), call.count() * size_of(out.dtype), 0);
  Side to{strides_of(out.sizes)};
  to.offset = call.evaluator.value_of(size_attr(call.op, "low")) * to.strides[dim_of(call)];
  const View& a = call.operands[0];
  strided_copy(a.dtype, a.sizes, a.data, {strides_of(a.sizes)}, out.data, to);
}

void concat(const Call& call) {
  const MutableView& out = call.results[0];
  Side to{strides_of(out.sizes)};
  for (const View& part : call.operands) {
    strided_copy(part.dtype, part.sizes, part.data, {strides_of(part.sizes)}, out.data, to);
    to.offset += part.sizes[dim_of(call)] * to.strides[dim_of(call)];
  }
}

void gather(const Call& call) {
  const View& table = call.operands[0];
  auto row = static_cast<size_t>(count_of(table.sizes.subspan(1)) * size_of(table.dtype));
  dispatch_integer(call.operands[1].dtype, [&]<typename T>(Tag<T>) {
    const T* index = call.in<T>(1);
    for (int64_t i = 0, n = count_of(call.operands[1].sizes); i < n; ++i) {
      auto from = static_cast<size_t>(checked_index(index[i], table.sizes[0], "gather"));
      if (row > 0) std::memcpy(call.out<char>() + static_cast<size_t>(i) * row, call.in<char>(0) + from * row, row);
    }
  });
}

void scatter_add(const Call& call) {
  auto out_sizes = call.results[0].sizes;
  int64_t row = count_of(out_sizes.subspan(1));
  dispatch_number(call.results[0].dtype, [&]<typename T>(Tag<T>) {
    // Sums in the accumulator type, so that f16 and bf16 round once.
    std::vector<Accumulator<T>> sums(static_cast<size_t>(call.count()));
    dispatch_integer(call.operands[0].dtype, [&]<typename Index>(Tag<Index>) {
      const Index* index = call.in<Index>(0);
      for (int64_t i = 0, n = count_of(call.operands[0].sizes); i < n; ++i) {
        Accumulator<T>* to = sums.data() + checked_index(index[i], out_sizes[0], "scatter_add") * row;
        const T* from = call.in<T>(1) + i * row;
        for (int64_t k = 0; k < row; ++k) to[k] += static_cast<Accumulator<T>>(load(from[k]));
      }
    });
    for (size_t i = 0; i < sums.size(); ++i) call.out<T>()[i] = store<T>(static_cast<Compute<T>>(sums[i]));
  });
}

void scatter(const Call& call) {
  auto sizes = call.results[0].sizes;
  auto row = static_cast<size_t>(count_of(sizes.subspan(1)) * size_of(call.results[0].dtype));
  copy(call);
  dispatch_integer(call.operands[1].dtype, [&]<typename T>(Tag<T>) {
    const T* index = call.in<T>(1);
    for (int64_t i = 0, n = count_of(call.operands[1].sizes); i < n; ++i) {
      auto to = static_cast<size_t>(checked_index(index[i], sizes[0], "scatter"));
      if (row > 0) std::memcpy(call.out<char>() + to * row, call.in<char>(2) + static_cast<size_t>(i) * row, row);
    }
  });
}

void dynamic_slice(const Call& call) {
  Side from{strides_of(call.operands[0].sizes)};
  const int64_t start = checked_start(call, call.operands[1].data, call.results[0].sizes[dim_of(call)]);
  from.offset = start * from.strides[dim_of(call)];
  copy_from(call, from);
}

void dynamic_update(const Call& call) {
  const View& update = call.operands[1];
  const MutableView& out = call.results[0];
  Side to{strides_of(out.sizes)};
  to.offset = checked_start(call, call.operands[2].data, update.sizes[dim_of(call)]) * to.strides[dim_of(call)];
  copy(call);
  strided_copy(update.dtype, update.sizes, update.data, {strides_of(update.sizes)}, out.data, to);
}

void pack(const Call& call) {
  const View& b = call.operands[0];
  auto groups = call.op.attr<int64_t>("groups");
  auto step = call.op.attr<int64_t>("width"), interleave = call.op.attr_or<int64_t>("interleave", 1);
  bool transposed = call.op.attr_or("transpose_b", false);
  int64_t columns = b.sizes[transposed ? 0 : 1];
  int64_t depth = b.sizes[transposed ? 1 : 0];
  int64_t n = columns / groups;
  int64_t panels = call.results[0].sizes[0], rows = call.results[0].sizes[1], width = groups * step;
  auto lay_out = [&]<typename T>(Tag<T>, auto become) {
    using Panel = decltype(become(T{}));
    const T* from = call.in<T>(0);
    std::fill_n(call.out<Panel>(), call.count(), Panel{});
    for (int64_t p = 0; p < panels; ++p)
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t g = 0; g < groups; ++g)
          for (int64_t j = p * step; j < std::min(n, (p + 1) * step); ++j) {
            int64_t column = g * n + j, at = g * step + j - p * step;
            int64_t to = ((p * rows + k / interleave) * width + at) * interleave + k % interleave;
            call.out<Panel>()[to] = become(transposed ? from[column * depth + k] : from[k * columns + column]);
          }
  };
  if (call.op.attr_or("widen", false) && b.dtype == DType::kI8)
    return lay_out(Tag<int8_t>(), [](int8_t x) { return static_cast<float>(x); });
  if (call.op.attr_or("widen", false)) return lay_out(Tag<Half>(), load<Half>);
  dispatch_number(b.dtype, [&]<typename T>(Tag<T> type) { lay_out(type, [](T x) { return x; }); });
}

}  // namespace kernels
}  // namespace weft::interpreter
