"""Weft's own programs in an exported graph: the module of each, and the function of an activation's text."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import torch

from weft.formats._layers import Activation, FormatError, Layer
from weft.formats._options import ACTIVATIONS, activation

_HEADER = re.compile(r"\s*program @(gru|lstm|rnn_tanh|rnn_relu)(?:_variant)?\(([^()]*)\) \{")
_PARAMETER = re.compile(r"([wbp]|ln)_(ih|hh|hr|i|f|o|c|c_bias)_(l\d+(?:_reverse)?)")
_MOST_TEXT = 1 << 22
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_MOST_CONSTANTS = 8


@dataclasses.dataclass(frozen=True)
class Variant:
    """What a program's inputs show about its module."""

    cell: str
    inputs: list[str]  #: all inputs, in order
    parameters: dict[str, str]  #: inputs that are weights, and PyTorch's names of them
    options: dict[str, Any]

    def check(self, program: str, layers: list[Layer], label: str) -> None:
        """Checks that the program computes what the layers compute, by writing the layers' own program.

        Sets `reset_after` of a GRU.

        Raises:
            FormatError: it computes something else.
        """
        from weft.formats._stacks import stacks_of

        for reset_after in (True, False) if self.cell == "gru" else (True,):
            for layer in layers:
                layer.reset_after = reset_after
            (stack,) = stacks_of("Weft's program", layers)
            if _body(program) == _body(_program_of(stack.make())):
                return
        raise FormatError(
            f"{label or 'its module'}: the graph holds a program of Weft's that isn't a plain {self.cell}; export it "
            "without run_decompositions"
        )


def variant_of(program: Any) -> Variant | None:
    """The variant of a program; None if the program isn't a recurrent module's (but a scan's, or operations that were
    fused)."""
    match = _HEADER.match(program) if isinstance(program, str) and len(program) < _MOST_TEXT else None
    if match is None:
        return None
    inputs = re.findall(r"%(\w+):", match[2])
    parameters = {name: own for name in inputs if (own := _pytorchs(name))}
    if "x" not in inputs or not parameters:
        return None
    options: dict[str, Any] = {"activation": activation("relu" if match[1] == "rnn_relu" else "tanh")}
    return Variant(match[1], inputs, parameters, options)


def _pytorchs(name: str) -> str:
    """PyTorch's name of a parameter of Weft's; "" if there is none."""
    match = _PARAMETER.fullmatch(name)
    if match is None:
        return ""
    kind, which, suffix = match.groups()
    words = {"w": "weight_", "b": "bias_", "p": "weight_c", "ln": "weight_ln_"}
    return f"bias_ln_c_{suffix}" if which == "c_bias" else f"{words[kind]}{which}_{suffix}"


def _body(program: str) -> str:
    """A program's text without its name, the sizes' names and the results beside y."""
    text = re.sub(r"\breturn ([^,\n]*)[^\n]*", r"return \1", program.partition(") {")[2])
    return text.partition("return")[0]


def _program_of(module: torch.nn.Module) -> str:
    """The program of the module, in evaluation."""
    from torch.fx.experimental.proxy_tensor import make_fx

    names = [name for name, _ in module.named_parameters()]

    def run(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x,))[0]

    x = torch.empty(5, 3, module.input_size, dtype=next(module.parameters()).dtype)  # type: ignore[arg-type]
    with torch.no_grad():
        graph = make_fx(run, tracing_mode="symbolic")(x, *module.parameters()).graph
    for node in graph.nodes:
        if str(node.target) == "weft.call.default":
            return str(node.args[0])
    return ""


def activation_of(text: Any, label: str) -> Activation:
    """The activation that an operator's argument stands for: a name, or the text of a program of one function.

    Raises:
        FormatError: it is no known activation.
    """
    if isinstance(text, str) and re.fullmatch(r"\w+", text):
        return activation(text)
    if isinstance(text, str) and len(text) < 10_000:
        for candidate in _candidates(text):
            if text in _texts(candidate):
                return candidate
    raise FormatError(
        f"{label or 'its module'}: has an activation of its own, which isn't among {', '.join(ACTIVATIONS)}"
    )


def _candidates(text: str) -> list[Activation]:
    """Activations whose texts differ from this one only in constants, with these constants as parameters."""
    numbers = list(dict.fromkeys(map(float, re.findall(rf"value = ({_NUMBER})", text))))[:_MOST_CONSTANTS]
    alike = [name for name in ACTIVATIONS if _shape(text) in map(_shape, _texts(activation(name)))]
    found = [activation(name) for name in alike]
    for name in alike:
        defaults = ACTIVATIONS[name]
        if len(defaults) == 1:
            found += [activation(name, alpha) for alpha in numbers]
        elif defaults:
            found += [activation(name, alpha, beta) for alpha in numbers for beta in numbers]
    return found


def _shape(text: str) -> str:
    return re.sub(rf"value = {_NUMBER}", "value", text)


@functools.lru_cache(maxsize=4096)
def _texts(candidate: Activation) -> tuple[str, ...]:
    from weft.formats._functions import evaluate
    from weft.nn import _activations

    try:
        return tuple(_activations.resolve("activation", functools.partial(evaluate, candidate)).values())
    except ValueError:
        return ()
