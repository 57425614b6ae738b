"""The variants of weft.nn, one by one and in random combinations."""

from __future__ import annotations

import torch
from reference_cells import run
from torch.nn import functional

import weft
import weft.nn


def squashed(x):
    """An activation that somebody made up."""
    return x / (1 + x.abs()) + 0.1 * torch.sin(x)


def ramp(x):
    """Keras 2's hard sigmoid, and ONNX's."""
    return (0.2 * x + 0.5).clamp(0, 1)


#: kind, options: each variant by itself.
VARIANTS = {
    "gru-reset-before": ("GRU", {"reset_after": False}),
    "gru-reset-before-layer-norm": ("GRU", {"reset_after": False, "layer_norm": True}),
    "gru-reset-before-dropout": ("GRU", {"reset_after": False, "recurrent_dropout": 0.3}),
    "gru-hard-sigmoid": ("GRU", {"gate_activation": "hard_sigmoid"}),
    "gru-activations": ("GRU", {"gate_activation": "identity", "activation": "relu", "cell_clip": 2.0}),
    "gru-callable": ("GRU", {"activation": squashed}),
    "gru-clip": ("GRU", {"cell_clip": 0.2}),
    "gru-layer-norm": ("GRU", {"layer_norm": True}),
    "gru-layer-norm-no-bias": ("GRU", {"layer_norm": True, "bias": False}),
    "gru-zoneout": ("GRU", {"zoneout": 0.3}),
    "gru-recurrent-dropout": ("GRU", {"recurrent_dropout": 0.3}),
    "lstm-hard-sigmoid": ("LSTM", {"gate_activation": "hard_sigmoid"}),
    "lstm-callables": (
        "LSTM",
        {"gate_activation": lambda x: (0.2 * x + 0.5).clamp(0, 1), "activation": functional.softsign},
    ),
    "lstm-clip": ("LSTM", {"cell_clip": 0.1}),
    "lstm-peepholes": ("LSTM", {"peepholes": True}),
    "lstm-coupled": ("LSTM", {"coupled_input_forget": True}),
    "lstm-coupled-forget": ("LSTM", {"coupled_input_forget": "forget"}),
    "lstm-coupled-peepholes": ("LSTM", {"coupled_input_forget": "input", "peepholes": True, "layer_norm": True}),
    "lstm-layer-norm": ("LSTM", {"layer_norm": True}),
    "lstm-layer-norm-projected": ("LSTM", {"layer_norm": True, "proj_size": 3, "bias": False}),
    "lstm-zoneout": ("LSTM", {"zoneout": (0.1, 0.5)}),
    "lstm-zoneout-projected": ("LSTM", {"zoneout": 0.3, "proj_size": 3}),
    "lstm-recurrent-dropout": ("LSTM", {"recurrent_dropout": 0.3}),
    "rnn-activation": ("RNN", {"activation": "softplus", "cell_clip": 1.0}),
    "rnn-relu-clip": ("RNN", {"nonlinearity": "relu", "cell_clip": 0.5}),
    "rnn-layer-norm": ("RNN", {"layer_norm": True}),
    "rnn-zoneout": ("RNN", {"zoneout": 0.3}),
    "rnn-recurrent-dropout": ("RNN", {"recurrent_dropout": 0.3, "nonlinearity": "relu"}),
    "gru-is-init": ("GRU", {}),
    "lstm-is-init": ("LSTM", {}),
    "rnn-is-init": ("RNN", {}),
}


class Case:
    """A module of weft.nn, and inputs for it."""

    def __init__(self, kind, *, input_size=5, hidden=7, steps=4, batch=3, with_state=True, with_init=True,
                 dtype=torch.float64, train=True, **options):  # fmt: skip
        self.module = getattr(weft.nn, kind)(input_size, hidden, dtype=dtype, **options).train(train)
        for name, parameter in self.module.named_parameters():
            if "ln" in name:  # away from their initial 1 and 0, at which a mistake may not show
                torch.nn.init.normal_(parameter, 1.0, 0.2)
        first_dims = (batch, steps) if self.module.batch_first else (steps, batch)
        self.x = torch.randn(*first_dims, input_size, dtype=dtype, requires_grad=True)
        rows = self.module.num_layers * (2 if self.module.bidirectional else 1)
        sizes = (self.module.proj_size or hidden, hidden)[: 2 if kind == "LSTM" else 1]
        self.states = [torch.randn(rows, batch, s, dtype=dtype, requires_grad=True) for s in sizes if with_state]
        self.is_init = torch.rand(first_dims) < 0.3 if with_init else None

    @property
    def hx(self):
        return None if not self.states else self.states[0] if len(self.states) == 1 else tuple(self.states)

    def leaves(self):
        return [self.x, *self.states, *self.module.parameters()]

    def outputs(self, function, seed=0):
        """y, hn and, of an LSTM, cn."""
        torch.manual_seed(seed)
        y, state = function(self.x, self.hx, self.is_init)
        return [y, *(state if isinstance(state, tuple) else [state])]

    def ours(self):
        return self.outputs(self.module)

    def reference(self):
        return self.outputs(lambda *inputs: run(self.module, *inputs))

    def gradients(self, outputs):
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(out.shape, dtype=out.dtype, generator=generator) for out in outputs]
        loss = sum((out * weight).sum() for out, weight in zip(outputs, weights, strict=True))
        return torch.autograd.grad(loss, self.leaves(), allow_unused=True, materialize_grads=True)

    def check(self, rtol=1e-9, atol=1e-9):
        """Outputs and gradients against the reference, and that all of it was machine code."""
        ours, theirs = self.ours(), self.reference()
        pairs = [*zip(ours, theirs, strict=True)]
        pairs += zip(self.gradients(ours), self.gradients(theirs), strict=True)
        for a, b in pairs:
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, msg=lambda m: f"{m}\n{self.module} {self.x.shape}")
        assert weft.stats()["fallbacks"] == {}, self.module


def variant(name, **more):
    kind, options = VARIANTS[name]
    return Case(kind, **(options | {"with_init": "is-init" in name} | more))
