"""Every sample that PyTorch has of its ops (op_db), in a step, held to eager PyTorch.

A skipped test names what a program has no op for.
"""

from __future__ import annotations

import os
import warnings

import pytest
import torch
from step_checks import assert_step, run
from torch.utils import _pytree as pytree
from torch_op_db import op_db

from weft._base.errors import FailedError, UnsupportedError

#: Ops of op_db of which every sample must be expressed, except those that a program refuses by its nature.
# fmt: off
MUST = {
    "abs", "add", "addcdiv", "addcmul", "addmm", "addmv", "addr", "all", "amax", "amin", "any", "argmax", "argmin",
    "asin", "asinh", "atan", "atan2", "atanh", "baddbmm", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
    "bmm", "cat", "ceil", "chunk", "clamp", "clone", "cos", "cosh", "cumprod", "cumsum", "diag_embed", "diagonal",
    "div", "dot", "eq", "erf", "erfc", "exp", "exp2", "expand", "expm1", "flatten", "flip", "floor", "fmod", "frac",
    "gather", "ge", "gt", "index_add", "index_copy", "index_fill", "index_select", "isfinite", "isinf", "isnan",
    "le", "lerp", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logsumexp", "lt", "masked_fill", "matmul", "maximum", "mean", "minimum", "mm",
    "movedim", "mul", "mv", "narrow", "nan_to_num", "ne", "neg", "permute", "pow", "prod", "reciprocal",
    "remainder", "repeat", "reshape", "roll", "round", "rsqrt", "rsub", "scatter_add", "select", "select_scatter",
    "sigmoid", "sign", "sin", "sinh", "slice", "slice_scatter", "softmax", "split", "sqrt", "square", "squeeze",
    "stack", "std", "sub", "sum", "t", "take_along_dim", "tan", "tanh", "tile", "trace", "transpose", "tril",
    "triu", "trunc", "unbind", "unsqueeze", "var", "view", "where",
}
# fmt: on
SAMPLES = int(os.environ.get("WEFT_OP_SAMPLES", "4"))

#: Words in the names of ops that eager mode itself leaves open, or whose samples are no functions of tensors.
# fmt: off
LEFT_OUT = (
    "empty", "rand", "bernoulli", "normal", "multinomial", "dropout", "uniform", "exponential", "cauchy",
    "geometric", "log_normal", "linalg", "svd", "qr", "eig", "lstsq", "lu", "cholesky", "pinverse", "fft", "stft",
    "istft", "sparse", "item", "nonzero", "unique", "masked_select", "equal", "allclose", "to_sparse", "nested",
    "_batch", "jiterator", "__getitem__", "tolist", "data_ptr", "as_strided", "resize", "conv", "pool",
    "interpolate", "upsample", "grid_sample", "ctc_loss", "histc", "histogram", "bincount", "searchsorted",
    "bucketize", "special", "polygamma", "view_as_", "complex", "polar", "real", "imag", "conj", "angle", "ormqr",
    "geqrf", "matrix_exp", "cdist", "corrcoef", "cov", "tensorinv", "native", "attention", "torch.ops", "unravel",
    "triu_indices", "tril_indices", "quant", "sort", "topk", "kthvalue", "median", "mode", "msort",
    "repeat_interleave", "block_diag", "combinations", "cartesian", "renorm", "segment", "fake",
)
# fmt: on


def samples_of(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = {}
        for sample in op.sample_inputs("cpu", torch.float64 if torch.float64 in op.dtypes else torch.int64):
            key = (tuple(getattr(sample.input, "shape", ())), len(sample.args), tuple(sample.kwargs))
            if key not in seen and len(seen) < SAMPLES:
                seen[key] = sample
        return list(seen.values())


OPS = [op for op in op_db if not any(word in op.full_name for word in LEFT_OUT)]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.full_name.replace(".", "_"))
def test_samples_of_pytorch(op, record_property):
    refused = set()
    for sample in samples_of(op):
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [x.detach() for x in leaves if isinstance(x, torch.Tensor)]
        if any(x.is_complex() for x in tensors):
            continue

        def f(*given, leaves=leaves, spec=spec):
            given = iter(given)
            x, args, kwargs = pytree.tree_unflatten(
                [next(given) if isinstance(y, torch.Tensor) else y for y in leaves], spec
            )
            return op(x, *args, **kwargs)

        try:
            f(*tensors)
        except NotImplementedError:  # there is no kernel for this dtype
            continue
        try:
            run(f, tensors)
        except (UnsupportedError, FailedError, RuntimeError) as error:
            assert "internal error" not in str(error)
            refused.add(str(error).split("\n")[0])
            continue
        assert_step(f, *tensors, gradients=op.supports_autograd, rtol=1e-7, atol=1e-8)
    if refused and op.name not in MUST:
        pytest.skip("; ".join(sorted(refused)))
    assert not refused
