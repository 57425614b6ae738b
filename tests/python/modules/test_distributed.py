"""torch.distributed with Weft imported: the example in two processes, and what is chosen where no device is named."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

import weft

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "data_parallel.py"


def test_the_example_trains_in_two_processes_as_in_one() -> None:
    """Started by torchrun; data parallel and with parameters split, forward and backward on Weft."""
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(EXAMPLE), "--wrap", "ddp", "fsdp", "--steps", "12"],
        capture_output=True, text=True, timeout=300, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(EXAMPLE.parent))
    try:
        alone = importlib.import_module("data_parallel").train("", 12, 0, 1)
    finally:
        sys.path.remove(str(EXAMPLE.parent))
    found = re.findall(r"^(\w+), 2 processes: loss (\S+) at first, (\S+) at last$", done.stdout, re.M)
    assert [wrap for wrap, *_ in found] == ["ddp", "fsdp"]
    for _, first, last in found:
        assert float(first) == pytest.approx(alone[0], abs=1e-5)
        assert float(last) == pytest.approx(alone[-1], abs=1e-5)
    assert alone[0] - alone[-1] > 1e-4
    compiled = re.search(r"^programs of weft: (\d+), left to PyTorch: {}$", done.stdout, re.M)
    assert compiled and int(compiled[1]) >= 2, done.stdout


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of this process alone, made without naming a backend."""
    dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def test_the_group_exchanges_tensors_of_the_cpu(alone: None) -> None:
    """Not tensors of the device weft, although torch.accelerator takes it for the machine's accelerator."""
    weft.device.register()
    assert torch.accelerator.current_accelerator() == torch.device("weft")
    assert dist.get_backend_config() == "cpu:gloo"
    x = torch.arange(3.0)
    dist.all_reduce(x)
    dist.barrier()
    assert x.tolist() == [0, 1, 2]


def test_parameters_are_split_on_the_cpu(alone: None) -> None:
    torch.manual_seed(0)
    plain = nn.GRU(3, 5)
    x = torch.randn(4, 2, 3)
    expected = plain(x)[0].detach()
    split = fully_shard(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, _ = split(x)
    y.sum().backward()
    torch.testing.assert_close(y.detach(), expected)
    assert {parameter.device.type for parameter in split.parameters()} == {"cpu"}
    assert all(parameter.grad is not None for parameter in split.parameters())


def test_the_older_fsdp_says_that_it_needs_an_accelerator(alone: None) -> None:
    with pytest.raises(RuntimeError, match=r"no accelerator device is detected\. On the CPU .*fully_shard does"):
        FullyShardedDataParallel(nn.Linear(3, 3))
