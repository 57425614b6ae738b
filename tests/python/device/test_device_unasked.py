"""`import weft` changes nothing for programs that don't use the device; and torch.accelerator works for those that
do."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest
import torch
import warm_python
from torch import nn

import weft

PROGRAM = Path(__file__).with_name("plain_program.py")


def said_by(*arguments):
    path = os.pathsep.join(filter(None, [str(Path(weft.__file__).parent.parent), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "WEFT_DEVICE": "1"}
    done = subprocess.run(
        [warm_python.command(), str(PROGRAM), *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_program_of_the_cpu_is_the_same_with_weft():
    without, with_weft = said_by(), said_by("weft")
    assert len(without) > 80
    assert with_weft == without


def test_the_accelerator_appears_with_the_first_tensor_of_the_device(run_warm_python):
    code = """
        import torch
        import weft
        from torch import accelerator
        print(torch.device("weft"), accelerator.current_accelerator(), accelerator.device_count())
        x = torch.ones(3).to("weft")
        print(accelerator.current_accelerator(), accelerator.is_available(), accelerator.device_count())
    """
    assert run_warm_python(textwrap.dedent(code), WEFT_DEVICE="1").splitlines() == ["weft None 0", "weft True 1"]


@pytest.mark.parametrize("ask", ["weft.device.register()", "import weft.compat.torch_xla as x; x.device()"])
def test_the_accelerator_appears_when_it_is_asked_for(run_warm_python, ask):
    code = f"""
        import torch
        import weft
        {ask}
        print(torch.accelerator.current_accelerator())
    """
    assert run_warm_python(textwrap.dedent(code), WEFT_DEVICE="1").split() == ["weft"]


def test_data_parallel_passes_the_device_by():
    x = torch.ones(2, 3, device="weft")
    assert x.is_weft and torch.accelerator.is_available()
    for place in ("cpu", "weft"):
        model = nn.Linear(3, 2).to(place)
        replicated = nn.DataParallel(model)
        assert replicated.device_ids == [] and model.weight.device.type == place
        torch.testing.assert_close(replicated(x.to(place)), model(x.to(place)))


def test_what_torch_accelerator_offers():
    x = torch.ones(1000, device="weft")
    weft.sync()
    accelerator = torch.accelerator
    assert accelerator.current_accelerator() == torch.device("weft")
    accelerator.empty_cache()
    assert accelerator.memory_allocated() == weft.device.memory_stats()["bytes"] >= 4 * len(x)
    assert accelerator.memory_reserved() == accelerator.memory_allocated()
    y = torch.ones(100_000, device="weft") + 1
    weft.sync()
    assert accelerator.memory_allocated() >= 400_000
    assert y[0].item() == 2
    del y
    assert accelerator.max_memory_allocated() >= 400_000 > accelerator.memory_allocated()
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    assert accelerator.max_memory_allocated() == accelerator.memory_allocated()
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total
    accelerator.set_device_index(0)
    assert accelerator.current_device_index() == 0
    with accelerator.device_index(0):
        x += 1
    assert weft.device.memory_stats()["pending"] > 0
    accelerator.synchronize()
    assert weft.device.memory_stats()["pending"] == 0 and x[0].item() == 2


def test_streams_change_nothing():
    x = torch.ones(3, device="weft")
    stream = torch.Stream()
    assert stream.device.type == "weft"
    assert stream == torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    with stream:
        x += 1
        event = stream.record_event()
    stream.wait_event(event)
    stream.wait_stream(torch.accelerator.current_stream())
    event.synchronize()
    stream.synchronize()
    assert event.query() and stream.query() and x.tolist() == [2, 2, 2]
