"""torch.autocast("weft") by the lists of the CPU and of PyTorch/XLA."""

from __future__ import annotations

import re

import pytest
import torch
from autocast_cases import CASES, ROOT, ids, tables
from torch import nn

import weft

NAMES = re.compile(r"constexpr std::string_view k(\w+)\[\] = \{(.*?)\};", re.DOTALL)
SOURCE = (ROOT / "pytorch" / "device" / "kernels" / "autocast_lists.cpp").read_text()
#: By the name of the array, the operations: XlaLower, XlaFloat, XlaPromote, CpuLower, CpuPromote.
WRITTEN = {name: re.findall(r'"([\w.]+)"', body) for name, body in NAMES.findall(SOURCE)}


@pytest.fixture
def autocast_list():
    yield weft.device.set_autocast_list
    weft.device.set_autocast_list("cuda")


def outcomes(case, device):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return tables.outcome(case, device)


#: Weft's own kernels of cells compute in the dtype of their arguments; the CPU's are made of products that are cast.
CELLS = {"lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}


@pytest.mark.parametrize("case", [case for case in CASES if case.operation not in CELLS], ids=ids)
@pytest.mark.filterwarnings("ignore")
def test_the_cpus_list_gives_what_the_cpu_gives(case, autocast_list):
    autocast_list("cpu")
    expected = outcomes(case, "cpu")
    if expected != "raises":
        assert outcomes(case, "weft") == expected


@pytest.mark.parametrize("case", [case for case in CASES if case.operation not in CELLS], ids=ids)
@pytest.mark.filterwarnings("ignore")
def test_the_list_of_xla(case, autocast_list):
    """Compared with the source of PyTorch/XLA's list: torch_xla/csrc/autocast_mode.cpp."""
    operation = case.operation
    forms = {name: {each.split(".")[0] for each in WRITTEN[name]} for name in WRITTEN}
    autocast_list("xla")
    found = outcomes(case, "weft")
    if operation in forms["XlaLower"]:
        assert set(found.split(", ")) == {tables.shorts(case.dtype)}
    elif operation == "pow" and not (len(case.args) == 2 and isinstance(case.args[1], (int, float))):
        assert found == tables.shorts(case.dtype)  # other overloads aren't in the list
    elif operation in forms["XlaFloat"] and found != "raises":
        assert set(found.split(", ")) <= {"f32", "i64"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.filterwarnings("ignore")
def test_values_by_each_list(dtype, autocast_list):
    """The values are those of explicit casts."""
    torch.manual_seed(0)
    x, image = torch.rand(3, 4, dtype=dtype), torch.rand(1, 2, 6, 6)
    square = torch.rand(3, 3) + 2 * torch.eye(3)
    target = torch.rand(3, 4)
    calls = {
        "inverse": (lambda put: torch.inverse(put(square.to(dtype))), torch.inverse(square.to(dtype).float())),
        "loss": (
            lambda put: nn.BCELoss()(put(x), put(target)),
            nn.functional.binary_cross_entropy(x.float(), target),
        ),
        "trace": (lambda put: torch.trace(put(square.to(dtype))), torch.trace(square.to(dtype).float())),
        "relu": (lambda put: torch.relu(put(target - 0.5)), torch.relu((target - 0.5).to(dtype))),
        "pool": (
            lambda put: nn.functional.max_pool2d(put(image), 2),
            nn.functional.max_pool2d(image.to(dtype).float(), 2).to(dtype),
        ),
        "norm": (
            lambda put: nn.functional.batch_norm(put(image.to(dtype)), None, None, training=True),
            nn.functional.batch_norm(image.to(dtype).float(), None, None, training=True),
        ),
        "fft": (lambda put: torch.fft.fft(put(x)).abs(), torch.fft.fft(x.float()).abs()),
        "quantile": (lambda put: torch.quantile(put(x), 0.5), torch.quantile(x.float(), 0.5)),
        "cat": (lambda put: torch.cat([put(x), put(target)]), torch.cat([x.float(), target])),
    }
    held_by = {"cpu": {"inverse", "loss", "trace", "fft", "quantile", "cat"}}
    held_by["xla"] = {"inverse", "loss", "trace", "relu", "pool", "norm", "cat"}
    for name, held in held_by.items():
        autocast_list(name)
        for each in sorted(held):
            call, expected = calls[each]
            with torch.autocast("weft", dtype=dtype):
                found = call(lambda tensor: tensor.to("weft"))
            assert found.dtype == expected.dtype, (name, each)
            torch.testing.assert_close(found.cpu(), expected, msg=lambda text, each=each: f"{each}: {text}")


def test_the_default_is_cudas_and_comes_back(autocast_list):
    x = torch.ones(3, device="weft")
    dtypes = []
    for name in ("cuda", "xla", "cuda", "cpu", "cuda"):
        autocast_list(name)
        with torch.autocast("weft", dtype=torch.bfloat16):
            dtypes.append((torch.exp(x.bfloat16()).dtype, torch.relu(x).dtype))
    f32, bf16 = torch.float32, torch.bfloat16
    assert dtypes == [(f32, f32), (bf16, bf16), (f32, f32), (bf16, f32), (f32, f32)]
    with pytest.raises(ValueError, match="lists cuda, cpu and xla, but got tpu"):
        autocast_list("tpu")


def test_gradients_go_through_the_casts(autocast_list):
    autocast_list("xla")
    x = torch.randn(3, 4, device="weft", requires_grad=True)
    with torch.autocast("weft", dtype=torch.bfloat16):
        torch.relu(x @ x.t()).float().square().sum().backward()
    y = x.detach().cpu().requires_grad_()
    torch.relu(y @ y.t()).square().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.grad, rtol=3e-2, atol=3e-1)


def test_the_operations_of_the_cpus_list_are_known_to_pytorch():
    registered = tables.registered("AutocastCPU")
    assert {*WRITTEN["CpuLower"], *WRITTEN["CpuPromote"]} - registered <= {"linalg_vecdot", "index_copy.dimname"}
