"""The options of `weft.nn`'s modules: those of each kind, and checks of their values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from weft._base.words import did_you_mean
from weft.nn import _activations

F = TypeVar("F", bound=Callable[..., None])

_COMMON: dict[str, Any] = {
    "activation": "tanh",
    "cell_clip": None,
    "layer_norm": False,
    "zoneout": 0.0,
    "recurrent_dropout": 0.0,
}
#: The options of each kind, and their defaults. An RNN's activation is its nonlinearity unless it is given.
OPTIONS: dict[str, dict[str, Any]] = {
    "GRU": {"reset_after": True, "gate_activation": "sigmoid"} | _COMMON,
    "LSTM": {"gate_activation": "sigmoid", "peepholes": False, "coupled_input_forget": False} | _COMMON,
    "RNN": _COMMON | {"activation": None},
}

_COUPLINGS = (False, True, "input", "forget")


def refusing_others(constructor: F) -> F:
    """Wraps a constructor of weft.nn's: an unknown keyword raises an error that suggests the closest known one."""
    known = [name for name in inspect.signature(constructor).parameters if name != "self"]

    @functools.wraps(constructor)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name == "proj_size" and name not in known:  # in PyTorch's words
                raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
            if name not in known:
                raise TypeError(f"weft.nn.{self.kind} has no option {name!r}{did_you_mean(name, known)}")
        constructor(self, *args, **kwargs)

    return checked  # type: ignore[return-value]


def check(kind: str, options: dict[str, Any]) -> None:
    """Raises ValueError or TypeError, naming the option, its value and what would be right."""
    for name in ("reset_after", "peepholes", "layer_norm"):
        if name in options and not isinstance(options[name], bool):
            raise TypeError(f"{name} should be of type bool, got: {type(options[name]).__name__}")
    if options.get("coupled_input_forget", False) not in _COUPLINGS:
        raise ValueError(
            "coupled_input_forget should be False, True or 'input' (f = 1 - i) or 'forget' (i = 1 - f), "
            f"got: {options['coupled_input_forget']!r}"
        )
    clip = options["cell_clip"]
    if clip is not None and (not _is_number(clip) or not clip > 0):
        raise ValueError(f"cell_clip should be a positive number, or None for no clipping, got: {clip!r}")
    zoneout = options["zoneout"]
    if isinstance(zoneout, tuple | list):
        if kind != "LSTM":
            raise ValueError(f"zoneout of a {kind} should be one probability (it has no cell state), got: {zoneout!r}")
        if len(zoneout) != 2:
            raise ValueError(f"zoneout should be a number or a pair (p_h, p_c), got: {zoneout!r}")
    for p in zoneout if isinstance(zoneout, tuple | list) else (zoneout,):
        if not _is_number(p) or not 0 <= p <= 1:
            raise ValueError(
                "zoneout should be a number in range [0, 1] representing the probability of a unit keeping its value"
                f"{', or a pair (p_h, p_c)' if kind == 'LSTM' else ''}, got: {zoneout!r}"
            )
    p = options["recurrent_dropout"]
    if not _is_number(p) or not 0 <= p < 1:
        raise ValueError(
            "recurrent_dropout should be a number in range [0, 1) representing the probability of a unit being zeroed, "
            f"got: {p!r}"
        )


def programs(options: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The operator's argument for an activation, by option and by the dtype that is computed in."""
    names = ("gate_activation", "activation")
    return {n: _activations.resolve(n, options[n]) for n in names if options.get(n) is not None}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
