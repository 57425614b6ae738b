#include "device/kernels/autocast_lists.h"

namespace weft::device {
namespace {

constexpr std::string_view kXlaLower[] = {
    "conv1d",
    "conv1d.padding",
    "conv2d",
    "conv2d.padding",
    "conv3d",
    "conv3d.padding",
    "bmm",
    "mm",
    "baddbmm",
    "addmm",
    "addbmm",
    "linear",
    "matmul",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "prelu",
    "relu",
    "max_pool2d",
    "einsum",
};

constexpr std::string_view kXlaFloat[] = {
    "batch_norm",
    "_softmax",
    "softmax.int",
    "softmax.Dimname",
    "log_softmax.int",
    "log_softmax.Dimname",
    "binary_cross_entropy",
    "pow.Tensor_Scalar",
    "prod",
    "prod.dim_int",
    "prod.dim_Dimname",
    "cdist",
    "trace",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "inverse",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "mse_loss",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss2d",
    "hinge_embedding_loss",
    "smooth_l1_loss",
    "cross_entropy_loss",
    "l1_loss",
    "margin_ranking_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "ctc_loss.IntList",
    "ctc_loss.Tensor",
    "kl_div",
    "multilabel_margin_loss",
    "binary_cross_entropy_with_logits",
    "qr",
    "svd",
    "triangular_solve",
    "multilabel_margin_loss_forward",
    "linalg_svd",
    "linalg_inv_ex",
};

constexpr std::string_view kXlaPromote[] = {"stack", "cat", "index_copy", "index_copy.dimname"};

constexpr std::string_view kCpuLower[] = {
    "conv1d",
    "conv1d.padding",
    "conv2d",
    "conv2d.padding",
    "conv3d",
    "conv3d.padding",
    "bmm",
    "mm",
    "linalg_vecdot",
    "baddbmm",
    "addmm",
    "_addmm_activation",
    "addbmm",
    "linear",
    "_convolution.deprecated",
    "matmul",
    "conv_tbc",
    "mkldnn_rnn_layer",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "prelu",
    "scaled_dot_product_attention",
    "_native_multi_head_attention",
};

constexpr std::string_view kCpuPromote[] = {"stack", "cat", "index_copy", "index_copy.dimname"};

}  // namespace

CastList cast_list_of_xla() { return {kXlaLower, kXlaFloat, kXlaPromote}; }

CastList cast_list_of_cpu() { return {kCpuLower, {}, kCpuPromote}; }

}  // namespace weft::device
