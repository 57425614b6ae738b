#include "device/graph/storage.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include "device/graph/memory.h"
#include "device/graph/record.h"
#include "device/graph/views.h"
#include "device/run/devices_in_use.h"
#include "device/run/run.h"
#include "device/run/watched_runs.h"
#include "record/recording_internal.h"

namespace weft::device {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::CachingAllocator::Stat amount(int64_t current, int64_t peak) {
  c10::CachingAllocator::Stat stat;
  stat.current = current;
  stat.peak = peak;
  return stat;
}

/// Allocates no memory. Each storage has an address of its own, so that PyTorch doesn't take its tensors for tensors
/// without data. Queries of torch.accelerator about memory are answered for the values that storages hold.
struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t) override { return {nullptr, nullptr, &c10::detail::deleteNothing, kDevice}; }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::detail::deleteNothing; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "weft internal error: memory of the device that has no bytes");
  }
  bool initialized() override { return devices_in_use() > 0; }
  /// Memory that no value uses is already free.
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const MemoryCounts counts = memory_counts();
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* kind : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes})
      (*kind)[kAll] = amount(counts.bytes, counts.most_bytes);
    return stats;
  }
  /// No accumulated statistics are kept.
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { forget_peak(); }
  /// The machine's free and total memory.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return {page * static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)), page * static_cast<size_t>(sysconf(_SC_PHYS_PAGES))};
  }
};

size_t bytes_of(at::ScalarType dtype, at::IntArrayRef sizes) {
  return static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
}

/// Made at load (base/fork.h).
Allocator& the_allocator = *new Allocator();

}  // namespace

/// The list of all storages.
/// Guarded by graph_mutex(), which a new storage needs for its contents too.
struct Storages {
  using Locked = std::lock_guard<std::mutex>;
  LazyStorage* first = nullptr;
  int64_t count = 0;

  void add(LazyStorage& storage, const Locked& /*locked*/) {
    ++count;
    storage.next_ = first;
    if (first != nullptr) first->previous_ = &storage;
    first = &storage;
  }

  void remove(LazyStorage& storage, const Locked& /*locked*/) {
    --count;
    if (storage.next_ != nullptr) storage.next_->previous_ = storage.previous_;
    (storage.previous_ != nullptr ? storage.previous_->next_ : first) = storage.next_;
  }

  /// The storage at an address; null if there is none. Not fast.
  LazyStorage* at_address(const void* address) {
    const Locked lock(graph_mutex());
    LazyStorage* each = first;
    while (each != nullptr && each != address) each = each->next_;
    return each;
  }
};

namespace {

/// Made at load (base/fork.h), never destroyed.
Storages& all = *new Storages();

}  // namespace

c10::Allocator& allocator() { return the_allocator; }

LazyStorage::LazyStorage(c10::SymInt bytes, c10::Allocator* allocator, bool resizable)
    : StorageImpl(use_byte_size_t(), std::move(bytes),
                  c10::DataPtr(this, nullptr, &c10::detail::deleteNothing, kDevice), allocator, resizable),
      sizes_{static_cast<int64_t>(nbytes())} {
  use_device();
  all.add(*this, Storages::Locked(graph_mutex()));
}

LazyStorage::LazyStorage(ValueRef contents)
    : StorageImpl(use_byte_size_t(), static_cast<int64_t>(bytes_of(contents->dtype, contents->sizes)),
                  c10::DataPtr(this, nullptr, &c10::detail::deleteNothing, kDevice), &the_allocator, true),
      contents_(std::move(contents)),
      dtype_(contents_->dtype),
      sizes_(contents_->sizes) {
  use_device();
  const Storages::Locked lock(graph_mutex());
  hold(*contents_, lock);
  all.add(*this, lock);
}

LazyStorage::~LazyStorage() {
  const Storages::Locked lock(graph_mutex());
  if (contents_) release(*contents_, lock);
  all.remove(*this, lock);
}

int64_t storages() {
  const Storages::Locked lock(graph_mutex());
  return all.count;
}

c10::intrusive_ptr<c10::StorageImpl> make_storage(c10::StorageImpl::use_byte_size_t, c10::SymInt bytes, c10::DataPtr,
                                                  c10::Allocator* allocator, bool resizable) {
  return c10::make_intrusive<LazyStorage>(std::move(bytes), allocator, resizable);
}

const ValueRef& LazyStorage::contents() {
  if (!contents_) set_contents(record_zeros(dtype_, sizes_));
  return contents_;
}

void LazyStorage::set_contents(ValueRef value) {
  dtype_ = value->dtype;
  sizes_ = value->sizes;
  if (contents_ && value->replaces == 0)
    value->replaces = is_pending(*contents_) ? contents_->replaces : contents_->number;
  hold(*value);
  if (contents_) release(*contents_);
  contents_ = std::move(value);
}

void LazyStorage::reshape(at::ScalarType dtype, at::IntArrayRef sizes) {
  TORCH_CHECK(bytes_of(dtype, sizes) == nbytes(), "weft internal error: a storage of ", nbytes(), " bytes as ", dtype,
              sizes);
  if (!contents_) {
    dtype_ = dtype;
    sizes_.assign(sizes.begin(), sizes.end());
  } else if (dtype == dtype_) {
    set_contents(record_reshape(contents_, sizes));
  } else {
    const Asking asking("aten::view.dtype");
    const at::Tensor tensor = computed(contents_);
    set_contents(known(tensor.reshape({-1}).view(dtype).view(sizes)));
  }
}

void LazyStorage::resize(size_t bytes) {
  if (bytes == nbytes()) return;
  if (contents_ && bytes > 0 && nbytes() > 0) {
    const Asking asking("aten::resize_");
    const at::Tensor old = computed(contents_).reshape({-1}).view(at::kByte);
    at::Tensor tensor = at::zeros({static_cast<int64_t>(bytes)}, at::kByte);
    const auto kept = static_cast<int64_t>(std::min(bytes, nbytes()));
    tensor.narrow(0, 0, kept).copy_(old.narrow(0, 0, kept));
    set_nbytes(bytes);
    return set_contents(known(std::move(tensor)));
  }
  if (contents_) release(*contents_);
  contents_.reset();
  set_nbytes(bytes);
  dtype_ = at::kByte;
  sizes_ = {static_cast<int64_t>(bytes)};
}

bool is_on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

bool has_values(const at::Tensor& tensor) {
  return is_on_device(tensor) && tensor.has_storage() && tensor.storage().device_type() == kDevice.type();
}

void check_on_device(const at::Tensor& tensor, const std::string& operation) {
  TORCH_CHECK(is_on_device(tensor), "Expected all tensors to be on the same device, but found at least two devices, ",
              "weft:0 and ", tensor.device(), "!",
              operation.empty() ? "" : " (when checking arguments for " + operation + ")");
}

LazyStorage& storage_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.has_storage(),
              "a tensor of weft.scan's step was kept after the step had returned; it never had a "
              "value");
  check_on_device(tensor);
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (storage->data() == storage) return static_cast<LazyStorage&>(*storage);
  // A tensor made of an address, such as pickle.dumps() and torch.save's old format make of a storage's address.
  LazyStorage* found = all.at_address(storage->data());
  TORCH_CHECK(found != nullptr,
              "weft: memory of the device has no addresses but those of storages; copy the tensor to "
              "the CPU");
  return *found;
}

namespace {

at::Tensor on_storage(c10::Storage storage, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                      int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kKeys, c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

/// The number of elements that the tensor spans, from its first in memory to its last.
int64_t extent(at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}

}  // namespace

at::Tensor make_tensor(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides) {
  const int64_t elements = extent(sizes, strides);
  auto storage =
      c10::make_intrusive<LazyStorage>(elements * static_cast<int64_t>(c10::elementSize(dtype)), &allocator(), true);
  if (auto dense = dense_sizes(sizes, strides)) {
    storage->reshape(dtype, *dense);
  } else {
    storage->reshape(dtype, {elements});
  }
  return on_storage(c10::Storage(std::move(storage)), dtype, sizes, strides, 0);
}

namespace {

c10::Storage storage_with(ValueRef value) { return c10::Storage(c10::make_intrusive<LazyStorage>(std::move(value))); }

bool is_contiguous(at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0; expected *= std::max<int64_t>(sizes[i], 1))
    if (strides[i] != expected) return false;
  return true;
}

}  // namespace

at::Tensor make_tensor(ValueRef value) {
  const at::ScalarType dtype = value->dtype;
  const Sizes sizes = value->sizes;
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(storage_with(std::move(value)), kKeys, c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor make_tensor(ValueRef value, at::IntArrayRef strides) {
  if (is_contiguous(value->sizes, strides)) return make_tensor(std::move(value));
  if (const auto order = dense_order(value->sizes, strides)) {
    const at::ScalarType dtype = value->dtype;
    const Sizes sizes = value->sizes;
    return on_storage(storage_with(record_permute(value, *order)), dtype, sizes, strides, 0);
  }
  at::Tensor tensor = make_tensor(value->dtype, value->sizes, strides);
  if (tensor.numel() > 0) write(tensor, std::move(value));
  return tensor;
}

at::Tensor make_view(const at::Tensor& base, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                     int64_t offset) {
  // In inference mode a view of a tensor from outside has a version counter, as tensors made outside of inference mode
  // have.
  std::optional<c10::InferenceMode> as_base;
  if (base.is_inference() != c10::InferenceMode::is_enabled()) as_base.emplace(base.is_inference());
  return on_storage(base.storage(), dtype, sizes, strides, offset);
}

}  // namespace weft::device
