#pragma once

#include <optional>

#include "device/graph/graph.h"

namespace weft::device {

/// A view of a contiguous tensor as operations: reshaped to `refined`, sliced, permuted to `order`, reshaped to `shape`
/// and expanded to the view's sizes.
struct ViewSteps {
  struct Slice {
    int64_t start, length, step;
    bool is_dropped;  ///< a single index, whose dim the view lacks
  };
  Sizes refined;
  c10::SmallVector<Slice, 4> slices;  ///< by refined dim
  Sizes order;                        ///< the dims of the view, as numbers of the dims that are not dropped
  Sizes shape;
  bool is_expanded = false;
};

/// The steps of a view; none if no such steps give it, as for overlapping windows and diagonals. `sizes` has no 0.
std::optional<ViewSteps> find_steps(at::IntArrayRef base, at::IntArrayRef sizes, at::IntArrayRef strides,
                                    int64_t offset);

/// The dims in the order of strides, if the tensor covers the memory that it spans without gaps or overlaps.
std::optional<Sizes> dense_order(at::IntArrayRef sizes, at::IntArrayRef strides);
/// The sizes in this order.
std::optional<Sizes> dense_sizes(at::IntArrayRef sizes, at::IntArrayRef strides);

/// The value of a tensor of the device.
ValueRef read(const at::Tensor& tensor);
/// Gives a new value, of the tensor's dtype and sizes, to the tensor and to all that share its memory.
void write(const at::Tensor& tensor, ValueRef value);

}  // namespace weft::device
