// Shapes of pooling, resampling, sorting and scattering, by PyTorch's own Meta functions in C++.

#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta_dispatch.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta_dispatch.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta_dispatch.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta_dispatch.h>
#include <ATen/ops/_upsample_lanczos2d_aa_backward_meta_dispatch.h>
#include <ATen/ops/_upsample_lanczos2d_aa_meta_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_meta_dispatch.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta_dispatch.h>
#include <ATen/ops/adaptive_max_pool3d_meta_dispatch.h>
#include <ATen/ops/avg_pool2d_backward_meta_dispatch.h>
#include <ATen/ops/avg_pool2d_meta_dispatch.h>
#include <ATen/ops/avg_pool3d_backward_meta_dispatch.h>
#include <ATen/ops/avg_pool3d_meta_dispatch.h>
#include <ATen/ops/index_add_meta_dispatch.h>
#include <ATen/ops/index_copy_meta_dispatch.h>
#include <ATen/ops/index_reduce_meta_dispatch.h>
#include <ATen/ops/isin_meta_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_meta_dispatch.h>
#include <ATen/ops/reflection_pad1d_backward_meta_dispatch.h>
#include <ATen/ops/reflection_pad1d_meta_dispatch.h>
#include <ATen/ops/reflection_pad3d_backward_meta_dispatch.h>
#include <ATen/ops/reflection_pad3d_meta_dispatch.h>
#include <ATen/ops/replication_pad1d_backward_meta_dispatch.h>
#include <ATen/ops/replication_pad1d_meta_dispatch.h>
#include <ATen/ops/replication_pad2d_meta_dispatch.h>
#include <ATen/ops/replication_pad3d_meta_dispatch.h>
#include <ATen/ops/scatter_add_meta_dispatch.h>
#include <ATen/ops/scatter_meta_dispatch.h>
#include <ATen/ops/scatter_reduce_meta_dispatch.h>
#include <ATen/ops/sort_meta_dispatch.h>
#include <ATen/ops/topk_meta_dispatch.h>
#include <ATen/ops/tril_meta_dispatch.h>
#include <ATen/ops/triu_meta_dispatch.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta_dispatch.h>
#include <ATen/ops/upsample_bicubic2d_meta_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_meta_dispatch.h>
#include <ATen/ops/upsample_linear1d_backward_meta_dispatch.h>
#include <ATen/ops/upsample_linear1d_meta_dispatch.h>
#include <ATen/ops/upsample_nearest1d_backward_meta_dispatch.h>
#include <ATen/ops/upsample_nearest1d_meta_dispatch.h>
#include <ATen/ops/upsample_nearest2d_backward_meta_dispatch.h>
#include <ATen/ops/upsample_nearest2d_meta_dispatch.h>
#include <ATen/ops/upsample_nearest3d_backward_meta_dispatch.h>
#include <ATen/ops/upsample_nearest3d_meta_dispatch.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta_dispatch.h>
#include <ATen/ops/upsample_trilinear3d_meta_dispatch.h>

#include "record/meta/shapes.h"

namespace weft::record {

using at::Tensor;

namespace {

std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending) {
  return at::meta::sort(x, /*stable=*/false, dim, descending);
}

}  // namespace

void add_selections(KernelTable& table) {
  table.add<Tensor(const Tensor&, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
      "_upsample_bicubic2d_aa", "", at::meta::_upsample_bicubic2d_aa);
  table
      .add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
          "_upsample_bicubic2d_aa_backward", "", at::meta::_upsample_bicubic2d_aa_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
      "_upsample_bilinear2d_aa", "", at::meta::_upsample_bilinear2d_aa);
  table
      .add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
          "_upsample_bilinear2d_aa_backward", "", at::meta::_upsample_bilinear2d_aa_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
      "_upsample_lanczos2d_aa", "", at::meta::_upsample_lanczos2d_aa);
  table
      .add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
          "_upsample_lanczos2d_aa_backward", "", at::meta::_upsample_lanczos2d_aa_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, std::optional<double>)>("_upsample_nearest_exact1d", "",
                                                                           at::meta::_upsample_nearest_exact1d);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, std::optional<double>)>(
      "_upsample_nearest_exact1d_backward", "", at::meta::_upsample_nearest_exact1d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, std::optional<double>, std::optional<double>)>(
      "_upsample_nearest_exact2d", "", at::meta::_upsample_nearest_exact2d);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, std::optional<double>, std::optional<double>)>(
      "_upsample_nearest_exact2d_backward", "", at::meta::_upsample_nearest_exact2d_backward);
  table
      .add<Tensor(const Tensor&, at::IntArrayRef, std::optional<double>, std::optional<double>, std::optional<double>)>(
          "_upsample_nearest_exact3d", "", at::meta::_upsample_nearest_exact3d);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, std::optional<double>, std::optional<double>,
                   std::optional<double>)>("_upsample_nearest_exact3d_backward", "",
                                           at::meta::_upsample_nearest_exact3d_backward);
  table.add<std::tuple<Tensor, Tensor>(const Tensor&, at::IntArrayRef)>("adaptive_max_pool2d", "",
                                                                        at::meta::adaptive_max_pool2d);
  table.add<Tensor(const Tensor&, const Tensor&, const Tensor&)>("adaptive_max_pool2d_backward", "",
                                                                 at::meta::adaptive_max_pool2d_backward);
  table.add<std::tuple<Tensor, Tensor>(const Tensor&, at::IntArrayRef)>("adaptive_max_pool3d", "",
                                                                        at::meta::adaptive_max_pool3d);
  table.add<Tensor(const Tensor&, const Tensor&, const Tensor&)>("adaptive_max_pool3d_backward", "",
                                                                 at::meta::adaptive_max_pool3d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, bool, bool,
                   std::optional<int64_t>)>("avg_pool2d", "", at::meta::avg_pool2d);
  table.add<Tensor(const Tensor&, const Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, bool, bool,
                   std::optional<int64_t>)>("avg_pool2d_backward", "", at::meta::avg_pool2d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, bool, bool,
                   std::optional<int64_t>)>("avg_pool3d", "", at::meta::avg_pool3d);
  table.add<Tensor(const Tensor&, const Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, bool, bool,
                   std::optional<int64_t>)>("avg_pool3d_backward", "", at::meta::avg_pool3d_backward);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&, const at::Scalar&)>("index_add", "",
                                                                                             at::meta::index_add);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&)>("index_copy", "", at::meta::index_copy);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&, c10::string_view, bool)>(
      "index_reduce", "", at::meta::index_reduce);
  table.add<Tensor(const Tensor&, const Tensor&, bool, bool)>("isin", "Tensor_Tensor", at::meta::isin);
  table.add<Tensor(const Tensor&, const at::Scalar&, bool, bool)>("isin", "Tensor_Scalar", at::meta::isin);
  table.add<Tensor(const at::Scalar&, const Tensor&, bool, bool)>("isin", "Scalar_Tensor", at::meta::isin);
  table.add<std::tuple<Tensor, Tensor>(const Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                                       at::IntArrayRef, bool)>("max_pool2d_with_indices", "",
                                                               at::meta::max_pool2d_with_indices);
  table.add<Tensor(const Tensor&, const Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                   bool, const Tensor&)>("max_pool2d_with_indices_backward", "",
                                         at::meta::max_pool2d_with_indices_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef)>("reflection_pad1d", "", at::meta::reflection_pad1d);
  table.add<Tensor(const Tensor&, const Tensor&, at::IntArrayRef)>("reflection_pad1d_backward", "",
                                                                   at::meta::reflection_pad1d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef)>("reflection_pad3d", "", at::meta::reflection_pad3d);
  table.add<Tensor(const Tensor&, const Tensor&, at::IntArrayRef)>("reflection_pad3d_backward", "",
                                                                   at::meta::reflection_pad3d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef)>("replication_pad1d", "", at::meta::replication_pad1d);
  table.add<Tensor(const Tensor&, const Tensor&, at::IntArrayRef)>("replication_pad1d_backward", "",
                                                                   at::meta::replication_pad1d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef)>("replication_pad2d", "", at::meta::replication_pad2d);
  table.add<Tensor(const Tensor&, at::IntArrayRef)>("replication_pad3d", "", at::meta::replication_pad3d);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, const at::Scalar&)>("scatter", "value", at::meta::scatter);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&)>("scatter", "src", at::meta::scatter);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&, c10::string_view)>("scatter", "reduce",
                                                                                            at::meta::scatter);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, const at::Scalar&, c10::string_view)>(
      "scatter", "value_reduce", at::meta::scatter);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&)>("scatter_add", "", at::meta::scatter_add);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&, c10::string_view, bool)>(
      "scatter_reduce", "two", at::meta::scatter_reduce);
  table.add("sort", "", sort);
  table.add<std::tuple<Tensor, Tensor>(const Tensor&, std::optional<bool>, int64_t, bool)>("sort", "stable",
                                                                                           at::meta::sort);
  table.add<std::tuple<Tensor, Tensor>(const Tensor&, int64_t, int64_t, bool, bool)>("topk", "", at::meta::topk);
  table.add<Tensor(const Tensor&, int64_t)>("tril", "", at::meta::tril);
  table.add<Tensor(const Tensor&, int64_t)>("triu", "", at::meta::triu);
  table.add<Tensor(const Tensor&, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
      "upsample_bicubic2d", "", at::meta::upsample_bicubic2d);
  table
      .add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
          "upsample_bicubic2d_backward", "", at::meta::upsample_bicubic2d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
      "upsample_bilinear2d", "", at::meta::upsample_bilinear2d);
  table
      .add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, bool, std::optional<double>, std::optional<double>)>(
          "upsample_bilinear2d_backward", "", at::meta::upsample_bilinear2d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, bool, std::optional<double>)>("upsample_linear1d", "",
                                                                                 at::meta::upsample_linear1d);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, bool, std::optional<double>)>(
      "upsample_linear1d_backward", "", at::meta::upsample_linear1d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, std::optional<double>)>("upsample_nearest1d", "",
                                                                           at::meta::upsample_nearest1d);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, std::optional<double>)>(
      "upsample_nearest1d_backward", "", at::meta::upsample_nearest1d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, std::optional<double>, std::optional<double>)>(
      "upsample_nearest2d", "", at::meta::upsample_nearest2d);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, std::optional<double>, std::optional<double>)>(
      "upsample_nearest2d_backward", "", at::meta::upsample_nearest2d_backward);
  table
      .add<Tensor(const Tensor&, at::IntArrayRef, std::optional<double>, std::optional<double>, std::optional<double>)>(
          "upsample_nearest3d", "", at::meta::upsample_nearest3d);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, std::optional<double>, std::optional<double>,
                   std::optional<double>)>("upsample_nearest3d_backward", "", at::meta::upsample_nearest3d_backward);
  table.add<Tensor(const Tensor&, at::IntArrayRef, bool, std::optional<double>, std::optional<double>,
                   std::optional<double>)>("upsample_trilinear3d", "", at::meta::upsample_trilinear3d);
  table.add<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, bool, std::optional<double>, std::optional<double>,
                   std::optional<double>)>("upsample_trilinear3d_backward", "",
                                           at::meta::upsample_trilinear3d_backward);
}

}  // namespace weft::record
