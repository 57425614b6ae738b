"""Device weft: seeds, data loaders, files and pickles."""

from __future__ import annotations

import copy
import io
import os
import pickle
import textwrap
import warnings
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# ---- random numbers


def test_generators():
    mine, cpus = torch.Generator(device="weft").manual_seed(5), torch.Generator().manual_seed(5)
    assert mine.device.type == "weft" and mine.initial_seed() == 5
    assert torch.equal(torch.randn(3, device="weft", generator=mine).cpu(), torch.randn(3, generator=cpus))
    state = mine.get_state()
    first = torch.rand(4, device="weft", generator=mine)
    twin = mine.clone_state()
    mine.set_state(state)
    assert torch.equal(first, torch.rand(4, device="weft", generator=mine))
    assert torch.equal(torch.rand(4, device="weft", generator=mine), torch.rand(4, device="weft", generator=twin))
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'weft'"):
        torch.rand(3, generator=mine)


@pytest.mark.parametrize("options", [{}, {"device_type": "weft"}, {"devices": [0], "device_type": "weft"}])
def test_fork_rng(options):
    torch.manual_seed(1)
    with torch.random.fork_rng(**options):
        inside = torch.rand(2, device="weft")
    assert torch.equal(inside, torch.rand(2, device="weft"))


def test_seeds_and_states():
    torch.manual_seed(3)
    first = torch.rand(3, device="weft")
    torch.weft.manual_seed(3)
    assert torch.equal(first, torch.rand(3, device="weft"))
    state = torch.weft.get_rng_state()
    second = torch.rand(3, device="weft")
    torch.weft.set_rng_state(state)
    assert torch.equal(second, torch.rand(3, device="weft"))
    torch.manual_seed(3)
    assert torch.equal(first.cpu(), torch.rand(3))


# ---- data


@pytest.mark.parametrize(
    "options", [{}, {"pin_memory": True}, {"num_workers": 2}, {"num_workers": 1, "pin_memory": True}]
)
def test_data_loaders(options):
    data = TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(data, batch_size=2, **options)
        assert sum(x.to("weft", non_blocking=True).sum().item() for x, _ in loader) == 66


def test_a_data_set_on_the_device():
    data = TensorDataset(torch.arange(12.0, device="weft").view(6, 2))
    assert sum(x.sum().item() for (x,) in DataLoader(data, batch_size=2)) == 66


class OnDevice(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.full((2,), float(i), device="weft")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_workers_that_send_tensors_of_the_device():
    """They arrive as copies; a worker has its own device."""
    batches = list(DataLoader(OnDevice(), batch_size=3, num_workers=2))
    assert [batch.device.type for batch in batches] == ["weft", "weft"]
    assert [batch[:, 0].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5]]


def test_sending_tensors_of_the_device():
    parameter = nn.Parameter(torch.ones(2, device="weft"))
    again = pickle.loads(ForkingPickler.dumps(parameter))
    assert isinstance(again, nn.Parameter) and again.requires_grad and again.device.type == "weft"
    assert again.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        ForkingPickler.dumps(parameter * 2)


# ---- files


def trained():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("weft")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3, device="weft")).square().sum().backward()
    optimizer.step()
    return model, optimizer


def loaded(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


@pytest.mark.parametrize(
    ("location", "device"),
    [
        (None, "cpu"),
        ("cpu", "cpu"),
        ("weft", "weft"),
        (torch.device("weft:0"), "weft"),
        ({"cpu": "weft"}, "weft"),
        (lambda storage, place: storage, "cpu"),
    ],
)
def test_checkpoints(location, device):
    model, optimizer = trained()
    saved = loaded({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, map_location=location)
    assert {tensor.device.type for tensor in saved["model"].values()} == {device}
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("weft")
    other.load_state_dict(saved["model"])
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name].cpu(), tensor.cpu())
    twin = torch.optim.Adam(other.parameters())
    twin.load_state_dict(saved["optimizer"])
    state, expected = twin.state[other[0].weight], optimizer.state[model[0].weight]
    assert state["exp_avg"].is_weft
    assert torch.equal(state["exp_avg"], expected["exp_avg"])


def test_files_from_the_cpu_and_whole_modules():
    assert loaded(torch.ones(3), map_location="weft").is_weft
    model, _ = trained()
    whole = loaded(model, weights_only=False)
    assert torch.equal(whole[0].weight, model[0].weight.cpu()) and whole[0].weight.requires_grad
    whole = loaded(model, weights_only=False, map_location="weft")
    assert torch.equal(whole[0].weight, model[0].weight) and whole[0].weight.is_weft


@pytest.mark.parametrize("again", [loaded, lambda x: loaded(x, map_location="weft"), copy.deepcopy])
def test_views_stay_views(again):
    x = torch.arange(6.0, device="weft")
    y, part, turned = again([x, x[1:3], x.view(2, 3).t()])
    assert y.is_weft == (again is not loaded)
    x = x.to(y.device)
    assert turned.stride() == (1, 3) and torch.equal(turned, x.view(2, 3).t())
    y[1] = 9
    assert part.tolist() == [9, 2] and x[1].item() == 1


def test_pickled_tensors():
    """Each unpickled tensor has its whole storage, as on the CPU."""
    x = torch.arange(6.0, device="weft")
    y, part, turned = pickle.loads(pickle.dumps([x, x[1:3], x.view(2, 3).t()]))
    assert y.is_cpu and part.tolist() == [1, 2] and turned.tolist() == [[0, 3], [1, 4], [2, 5]]
    model = pickle.loads(pickle.dumps(nn.Linear(2, 3).to("weft")))
    assert model.weight.is_cpu and model.weight.requires_grad


def test_the_old_file_format():
    file = io.BytesIO()
    x = torch.arange(6.0, device="weft")
    torch.save(x[2:], file, _use_new_zipfile_serialization=False)
    file.seek(0)
    assert torch.load(file).tolist() == [2, 3, 4, 5]


def test_a_file_where_weft_is_not_imported(tmp_path, run_warm_python):
    torch.save(torch.ones(2, device="weft"), tmp_path / "x.pt")
    code = f"""
        import torch
        print(torch.load({str(tmp_path / "x.pt")!r}).tolist())
    """
    assert run_warm_python(textwrap.dedent(code)).split() == ["[1.0,", "1.0]"]
