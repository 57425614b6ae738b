"""Facts that a file lacks, given by the caller: `options`, a dict from names to values or to their text."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from weft.formats._layers import Activation, FormatError

#: By activation: the defaults of alpha and beta, if it has them.
ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "sigmoid": (),
    "tanh": (),
    "relu": (),
    "identity": (),
    "hard_sigmoid": (1 / 6, 0.5),
    "hard_tanh": (),
    "softsign": (),
    "softplus": (),
    "elu": (1.0,),
    "selu": (),
    "leaky_relu": (0.01,),
    "silu": (),
    "gelu": (),
    "mish": (),
    "exp": (),
    "affine": (1.0, 0.0),
    "scaled_tanh": (1.0, 1.0),
    "thresholded_relu": (1.0,),
    "relu6": (),
    "hard_silu": (),
    "log_sigmoid": (),
    "gelu_tanh": (),
}
_ALIASES = {
    "linear": "identity",
    "hardsigmoid": "hard_sigmoid",
    "hardtanh": "hard_tanh",
    "swish": "silu",
    "logsigmoid": "log_sigmoid",
    "hardswish": "hard_silu",
    "hard_swish": "hard_silu",
}


def activation(name: str, *parameters: float) -> Activation:
    """An activation by name (aliases too: linear, swish, hard_swish, ...), with its default parameters if none given.

    Raises:
        FormatError: there is no such name, or it hasn't as many parameters.
    """
    name = _ALIASES.get(name.lower(), name.lower())
    if name not in ACTIVATIONS:
        raise FormatError(f"there is no activation {name!r}; there are {', '.join(ACTIVATIONS)}")
    defaults = ACTIVATIONS[name]
    if len(parameters) > len(defaults):
        wanted = ("none", "alpha", "alpha and beta")[len(defaults)]
        raise FormatError(f"activation {name} has {wanted} as parameters, got {len(parameters)} numbers")
    alpha, beta = (*parameters, *defaults[len(parameters) :], math.nan, math.nan)[:2]
    return Activation(name, alpha, beta)


def parse_activation(text: str) -> Activation:
    """Parses what `str` of an Activation writes: `relu`, `hard_sigmoid(0.2, 0.5)`.

    Raises:
        FormatError: the text is no activation.
    """
    match = re.fullmatch(r"\s*([\w.]+)\s*(?:\(([^()]*)\))?\s*", text)
    if match is None:
        raise FormatError(f"expected an activation such as relu or hard_sigmoid(0.2, 0.5), got: {text!r}")
    try:
        parameters = [float(word) for word in (match[2] or "").split(",") if word.strip()]
    except ValueError:
        raise FormatError(f"the parameters of an activation are numbers, got: {text!r}") from None
    return activation(match[1], *parameters)


@dataclasses.dataclass
class Options:
    """The options for one file. A missing option is None, or the default given by the caller."""

    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    container: str = ""  #: the kind of file, a key of `_files.sniff.CONTAINERS`

    def check(self, format: str, known: Collection[str]) -> None:
        """Raises FormatError for names that `format` doesn't know; the message lists those that it knows."""
        for name in self.values:
            if name not in known:
                has = f"it has {', '.join(sorted(known))}" if known else "it has none"
                raise FormatError(f"{format} files have no option {name!r}; {has}")

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def flag(self, name: str, default: bool | None = None) -> Any:
        """A bool, from a bool or from true, false, yes, no, 1, 0."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        if (word := str(value).lower()) in ("true", "yes", "1"):
            return True
        if word in ("false", "no", "0"):
            return False
        raise FormatError(f"option {name} is true or false, got: {value!r}")

    def number(self, name: str, default: float | None = None) -> float | None:
        value = self.values.get(name)
        if value is None:
            return default
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise FormatError(f"option {name} is a number, got: {value!r}")
        return number

    def activation(self, name: str, default: Activation | None = None) -> Any:
        """An Activation, from one or from its text."""
        value = self.values.get(name)
        if value is None or isinstance(value, Activation):
            return default if value is None else value
        try:
            return parse_activation(str(value))
        except FormatError as error:
            raise FormatError(f"option {name}: {error}") from None

    def word(self, name: str, choices: Collection[str], default: str | None = None) -> Any:
        """One of the allowed words."""
        value = self.values.get(name)
        if value is None:
            return default
        if str(value) not in choices:
            raise FormatError(f"option {name} is one of {', '.join(map(repr, choices))}, got: {value!r}")
        return str(value)

    def text(self, name: str, default: str | None = None) -> Any:
        value = self.values.get(name)
        return default if value is None else str(value)


def named_values(words: Sequence[str], option: str) -> dict[str, str]:
    """The values of NAME=VALUE words of a command line, by name; messages call them `option`."""
    options = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise FormatError(f"{option} should be NAME=VALUE, got: {word!r}")
        options[name.strip()] = value.strip()
    return options
