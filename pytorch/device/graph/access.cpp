// The values of tensors of the device: what their storages hold, seen through sizes, strides and offset.

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/arange.h>

#include "device/graph/history_table.h"
#include "device/graph/record.h"
#include "device/graph/storage.h"
#include "device/graph/views.h"

namespace weft::device {
namespace {

bool is_whole(const LazyStorage& storage, const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.scalar_type() == storage.dtype() && tensor.sizes() == storage.sizes() &&
         tensor.is_contiguous();
}

/// Brings the storage's contents to the tensor's dtype and, if the tensor covers the storage, to its dims.
void bring_to_form(LazyStorage& storage, const at::Tensor& tensor) {
  if (tensor.scalar_type() == storage.dtype()) return;
  const auto bytes = static_cast<int64_t>(storage.nbytes()), element = static_cast<int64_t>(tensor.element_size());
  if (bytes % element != 0) storage.resize(static_cast<size_t>((bytes + element - 1) / element * element));
  auto dense = dense_sizes(tensor.sizes(), tensor.strides());
  const bool covers = dense && tensor.storage_offset() == 0 && tensor.numel() * element == bytes;
  storage.reshape(tensor.scalar_type(), covers ? at::IntArrayRef(*dense) : at::IntArrayRef{bytes / element});
}

/// For each element of the tensor, its index among the storage's elements.
ValueRef places_of(const LazyStorage& storage, const at::Tensor& tensor) {
  const int64_t elements = c10::multiply_integers(storage.sizes());
  return known(at::arange(elements, at::kLong)
                   .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset())
                   .contiguous());
}

void check_extent(const LazyStorage& storage, const at::Tensor& tensor) {
  int64_t last = tensor.storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  TORCH_CHECK((last + 1) * static_cast<int64_t>(tensor.element_size()) <= static_cast<int64_t>(storage.nbytes()),
              "weft: a tensor of sizes ", tensor.sizes(), ", strides ", tensor.strides(), " and offset ",
              tensor.storage_offset(), " lies outside its storage of ", storage.nbytes(), " bytes");
}

ValueRef follow(const ViewSteps& steps, ValueRef value, const at::Tensor& tensor) {
  value = record_reshape(value, steps.refined);
  for (size_t i = steps.slices.size(); i-- > 0;) {
    const auto& [start, length, step, is_dropped] = steps.slices[i];
    const auto dim = static_cast<int64_t>(i);
    value = is_dropped ? record_select(value, dim, start) : record_slice(value, dim, start, length, step);
  }
  value = record_reshape(record_permute(value, steps.order), steps.shape);
  return steps.is_expanded ? record_expand(value, tensor.sizes()) : value;
}

/// The contents, after the elements that the steps lead to have been replaced by `value`.
ValueRef follow_back(const ViewSteps& steps, const ValueRef& contents, ValueRef value) {
  Sizes viewed, inverse(steps.order.size());
  for (size_t i = 0; i < steps.order.size(); ++i)
    inverse[static_cast<size_t>(steps.order[i])] = static_cast<int64_t>(i);
  Sizes lengths;
  for (const auto& slice : steps.slices)
    if (!slice.is_dropped) lengths.push_back(slice.length);
  for (int64_t dim : steps.order) viewed.push_back(lengths[static_cast<size_t>(dim)]);
  value = record_permute(record_reshape(value, viewed), inverse);
  // The nested parts, from the whole to what is replaced; then back.
  std::vector<ValueRef> parts{record_reshape(contents, steps.refined)};
  for (size_t i = steps.slices.size(); i-- > 1;) {
    const auto& [start, length, step, is_dropped] = steps.slices[i];
    const auto dim = static_cast<int64_t>(i);
    parts.push_back(is_dropped ? record_select(parts.back(), dim, start)
                               : record_slice(parts.back(), dim, start, length, step));
  }
  for (size_t i = 0; i < steps.slices.size(); ++i) {
    const auto& [start, length, step, is_dropped] = steps.slices[i];
    const auto dim = static_cast<int64_t>(i);
    const ValueRef& whole = parts[steps.slices.size() - 1 - i];
    value = is_dropped ? record_select_scatter(whole, value, dim, start)
                       : record_slice_scatter(whole, value, dim, start, length, step);
  }
  return record_reshape(value, contents->sizes);
}

/// The operations that read views, by the form of the storage and the view. Each thread has its own table: a look-up is
/// faster than recording the operations again.
class KnownReads {
 public:
  /// Null if the view has not been read yet.
  const std::vector<FormRef>* find(const LazyStorage& storage, const at::Tensor& tensor) {
    spell(storage, tensor);
    return reads_.find();
  }

  void keep(const LazyStorage& storage, const at::Tensor& tensor, std::vector<FormRef> forms) {
    reads_.add(spell(storage, tensor), std::move(forms));  // spelled again: recording may have read other views
  }

 private:
  const std::vector<int64_t>& spell(const LazyStorage& storage, const at::Tensor& tensor) {
    std::vector<int64_t>& words = reads_.start();
    words.push_back(static_cast<int64_t>(storage.dtype()));
    words.push_back(tensor.storage_offset());
    words.push_back(static_cast<int64_t>(storage.sizes().size()));
    for (const at::IntArrayRef each : {storage.sizes(), tensor.sizes(), tensor.strides()})
      for (const int64_t word : each) words.push_back(word);
    return words;
  }

  static constexpr size_t kMost = 1U << 12U;
  HistoryTable<std::vector<FormRef>> reads_{kMost};
};

ValueRef read_memory(const at::Tensor& tensor) {
  thread_local KnownReads known_reads;
  LazyStorage& storage = storage_of(tensor);
  if (is_whole(storage, tensor)) return storage.contents();
  if (tensor.numel() == 0) return record_zeros(tensor.scalar_type(), tensor.sizes());
  if (tensor.scalar_type() == storage.dtype())
    if (const auto* forms = known_reads.find(storage, tensor)) return record_forms(*forms, storage.contents());
  check_extent(storage, tensor);
  bring_to_form(storage, tensor);
  if (is_whole(storage, tensor)) return storage.contents();
  if (auto steps = find_steps(storage.sizes(), tensor.sizes(), tensor.strides(), tensor.storage_offset())) {
    const ValueRef contents = storage.contents(), value = follow(*steps, contents, tensor);
    known_reads.keep(storage, tensor, forms_between(contents, value));
    return value;
  }
  const ValueRef flat = record_reshape(storage.contents(), {c10::multiply_integers(storage.sizes())});
  return record_gather(flat, places_of(storage, tensor));
}

}  // namespace

ValueRef read(const at::Tensor& tensor) {
  ValueRef value = read_memory(tensor);
  if (tensor.is_conj()) value = record_unary("aten::conj_physical", value);
  if (tensor.is_neg()) value = record_unary("aten::neg", value);
  return value;
}

void write(const at::Tensor& tensor, ValueRef value) {
  if (tensor.is_neg()) value = record_unary("aten::neg", value);
  if (tensor.is_conj()) value = record_unary("aten::conj_physical", value);
  LazyStorage& storage = storage_of(tensor);
  if (tensor.numel() == 0) return;
  if (is_whole(storage, tensor)) return storage.set_contents(std::move(value));
  at::assert_no_internal_overlap(tensor);
  check_extent(storage, tensor);
  bring_to_form(storage, tensor);
  if (is_whole(storage, tensor)) return storage.set_contents(std::move(value));
  if (auto steps = find_steps(storage.sizes(), tensor.sizes(), tensor.strides(), tensor.storage_offset()))
    return storage.set_contents(follow_back(*steps, storage.contents(), std::move(value)));
  const Sizes sizes{storage.sizes().begin(), storage.sizes().end()};
  const int64_t elements = c10::multiply_integers(at::IntArrayRef(sizes)), count = tensor.numel();
  const ValueRef flat = record_reshape(storage.contents(), {elements});
  const ValueRef places = known(places_of(storage, tensor)->tensor.reshape({count}));
  storage.set_contents(record_reshape(record_scatter(flat, places, record_reshape(value, {count})), sizes));
}

}  // namespace weft::device
