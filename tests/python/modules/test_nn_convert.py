"""weft.nn.convert: modules become Weft's in place, and everything that refers to them stays valid."""

from __future__ import annotations

import copy

import pytest
import torch
from reference_cells import run
from torch import nn

import weft.nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Embedding(11, 5), nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True))
        self.heads = nn.ModuleDict({"a": nn.GRU(12, 4), "b": nn.RNN(12, 4, nonlinearity="relu")})
        self.again = self.heads["a"]

    def forward(self, tokens):
        y = self.encoder(tokens)[0].transpose(0, 1)
        return self.heads["a"](y)[0] + self.heads["b"](y)[0] + self.again(y)[0]


def tokens():
    return torch.randint(0, 11, (3, 7))


def test_a_nested_model_computes_the_same():
    model, x = Tagger(), tokens()
    want, keys = model(x), list(model.state_dict())
    before = {name: id(p) for name, p in model.named_parameters()}
    report = weft.nn.convert(model)
    assert report.names == ["encoder.1", "heads.a", "heads.b"]
    assert [entry.kind for entry in report] == ["LSTM", "GRU", "RNN"]
    assert "heads.b" in report and "again" not in report and report.model is model
    assert str(report).split("\n") == [
        "weft.nn.convert: replaced 3 modules", "  encoder.1: LSTM", "  heads.a: GRU", "  heads.b: RNN",
    ]  # fmt: skip
    assert isinstance(model.encoder[1], weft.nn.LSTM) and isinstance(model.encoder[1], nn.LSTM)
    assert model.again is model.heads["a"]
    assert {name: id(p) for name, p in model.named_parameters()} == before
    assert torch.equal(model(x), want) and list(model.state_dict()) == keys
    Tagger().load_state_dict(model.state_dict(), strict=True)
    torch.testing.assert_close(copy.deepcopy(model)(x), want)


def test_the_root_itself():
    module = nn.GRU(3, 4)
    report = weft.nn.convert(module)
    assert report.model is module and type(module) is weft.nn.GRU and report.names == [""]
    assert str(report) == "weft.nn.convert: replaced 1 module\n  (root): GRU"


def test_nothing_to_replace_says_so():
    report = weft.nn.convert(nn.Linear(2, 2))
    assert not report and len(report) == 0
    assert str(report) == "weft.nn.convert: nothing to replace: no nn.GRU, nn.LSTM or nn.RNN"


def test_what_is_left_as_it_is_is_named():
    class Odd(nn.GRU):
        def forward(self, x):
            return super().forward(x)[0]

    model = nn.Sequential(Odd(3, 4), weft.nn.LSTM(4, 5))
    report = weft.nn.convert(model)
    assert not report and type(model[0]) is Odd
    assert report.skipped == {"0": "Odd is a class of its own", "1": "is a weft.nn module already"}
    assert "  0: left as it is: Odd is a class of its own" in str(report)


def test_options_take_effect():
    model = nn.Sequential(nn.LSTM(3, 4, bidirectional=True).double())
    model[0].weight_hh_l0.requires_grad_(False)
    weft.nn.convert(model, layer_norm=True, cell_clip=0.3)
    lstm, x = model[0], torch.randn(5, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(lstm(x)[0], run(lstm, x)[0])
    names = [name for name, _ in lstm.named_parameters() if "ln" in name]
    assert len(names) == 8 and all(getattr(lstm, name).dtype == torch.float64 for name in names)


def test_new_peepholes_change_nothing_and_learn():
    lstm, x = nn.LSTM(3, 4), torch.randn(5, 2, 3)
    want = lstm(x)[0]
    weft.nn.convert(lstm, peepholes=True)
    torch.testing.assert_close(lstm(x)[0], want)
    lstm(x)[0].sum().backward()
    assert lstm.weight_ci_l0.grad.abs().sum() > 0


def test_optimisers_hooks_and_flags_survive():
    model, seen = nn.Sequential(nn.GRU(3, 4)).eval(), []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    weft.nn.convert(model, reset_after=False)
    assert not model[0].training
    before = model[0].weight_hh_l0.detach().clone()
    model(torch.randn(5, 2, 3))[0].sum().backward()
    optimiser.step()
    assert seen == [1] and not torch.equal(model[0].weight_hh_l0, before)


def test_parametrizations_survive():
    gru, x = nn.GRU(3, 4), torch.randn(5, 2, 3)
    nn.utils.parametrizations.weight_norm(gru, "weight_hh_l0")
    report = weft.nn.convert(gru, cell_clip=100.0)
    assert report.names == [""] and isinstance(gru, weft.nn.GRU)
    gru(x)[0].sum().backward()
    assert gru.parametrizations.weight_hh_l0.original1.grad is not None
    torch.testing.assert_close(gru(x)[0], run(gru, x)[0])
    copied = copy.deepcopy(gru)
    torch.testing.assert_close(copied(x)[0], gru(x)[0])
    nn.utils.parametrize.remove_parametrizations(gru, "weight_hh_l0")
    assert type(gru) is weft.nn.GRU
    torch.testing.assert_close(run(gru, x)[0], gru(x)[0])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"reset": True}, r"there is no option 'reset'; did you mean 'reset_after'\?"),
        ({"x": 1}, "there is no option 'x'; there are activation, cell_clip"),
        ({"peepholes": True}, "'heads.a' is a GRU, which has no option 'peepholes'; it has reset_after"),
        ({"zoneout": 2}, r"zoneout should be a number in range \[0, 1\]"),
        ({"activation": "none"}, "activation: there is no activation 'none'"),
    ],
)
def test_a_bad_option_changes_nothing(options, message):
    model = Tagger()
    with pytest.raises(ValueError, match=message):
        weft.nn.convert(model, **options)
    assert type(model.encoder[1]) is nn.LSTM


def test_no_module():
    with pytest.raises(TypeError, match=r"weft.nn.convert: expected a torch.nn.Module, got: dict"):
        weft.nn.convert({})
