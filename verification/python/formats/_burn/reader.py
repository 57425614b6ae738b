"""Burn: records of Gru, Lstm, Rnn and of their Bi forms, as burn-store's SafetensorsStore and PytorchStore have them.

A gate is two Linear layers, `input_transform` and `hidden_transform`. Burn's own layout of their weights is
[inputs, outputs]; what BurnToPyTorchAdapter made, or PyTorchToBurnAdapter is to take, has [outputs, inputs].

The equations (burn-nn, modules/rnn) are those here: z, the update gate, keeps the state where it is 1. With reset_after
the bias of the new gate's hidden product is inside the reset; without it the product is of r h, and its bias stays
outside. A Gru and an Rnn clip their hidden state, an Lstm its cell state; `input_forget` makes f = 1 - i.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from weft.formats._beside import beside, parts_of
from weft.formats._files.tensors import parameter
from weft.formats._layers import SIGMOID, TANH, Direction, FormatError, Layer, Source
from weft.formats._options import Options, activation

OPTIONS = (
    "module", "reset_after", "gate_activation", "activation", "output_activation", "cell_clip", "coupled_input_forget",
    "reverse", "layout",
)  # fmt: skip

#: Burn's gates in the order of the rows here.
BURN_GATES = {
    "GRU": ("reset_gate", "update_gate", "new_gate"),
    "LSTM": ("input_gate", "forget_gate", "cell_gate", "output_gate"),
    "RNN": ("gate",),
}
_NAME = re.compile(
    r"(?:(.*)\.)?((?:reset|update|new|input|forget|cell|output)_gate|gate)\.(input|hidden)_transform\.(weight|bias)",
    re.DOTALL,
)
#: By kind: the fields that are activations, and their names in a Layer.
ACTIVATIONS = {
    "GRU": {"gate_activation": "gate_activation", "hidden_activation": "activation"},
    "LSTM": {
        "gate_activation": "gate_activation",
        "cell_activation": "activation",
        "hidden_activation": "output_activation",
    },
    "RNN": {"hidden_activation": "activation"},
}


def layers_of(tensors: dict[str, Tensor], options: Options) -> Source | None:
    """The recurrent modules of a record, in the order of their names.

    Raises:
        FormatError: a module's parameters don't fit each other, or some are missing.
    """
    modules: dict[str, dict[str, str]] = {}
    for name in tensors:
        match = _NAME.fullmatch(name)
        if match is not None:
            modules.setdefault(match[1] or "", {})[f"{match[2]}.{match[3]}.{match[4]}"] = name
    kinds = {prefix: _kind(prefix, found) for prefix, found in modules.items()}
    if not modules:
        return None
    source = Source("", "burn", [])
    transposed = _is_transposed(tensors, modules, kinds, options, source)
    directions = {prefix: _direction(tensors, found, kinds[prefix], transposed) for prefix, found in modules.items()}
    used = {name for found in modules.values() for name in found.values()}
    wanted = options.text("module")
    for name, parts in _pairs(modules).items():
        if wanted is None or f"{name}.".startswith(f"{wanted}."):
            layer = _layer(name, [directions[part] for part in parts], [kinds[part] for part in parts], options)
            _parametric(tensors, layer, parts, used)
            source.layers.append(layer)
    if not source.layers:
        raise FormatError(f"has no recurrent module {wanted!r}; it has {', '.join(_pairs(modules))}")
    _follow(source)
    _assumptions(source, options)
    source.ignored = [name for name in tensors if name not in used]
    chosen = [prefix for prefix, found in modules.items() if used & set(found.values())]
    source.unused = beside(source.ignored, [parts_of(prefix) if prefix else () for prefix in chosen])
    return source


def _kind(prefix: str, found: dict[str, str]) -> str:
    gates = {key.split(".")[0] for key in found}
    for kind, own in BURN_GATES.items():
        if gates <= set(own):
            missing = [
                gate for gate in own if f"{gate}.input.weight" not in found or f"{gate}.hidden.weight" not in found
            ]
            if missing:
                raise FormatError(
                    f"{prefix or 'the module'}: has no weights of {', '.join(missing)}, as a {kind.capitalize()} has"
                )
            return kind
    raise FormatError(f"{prefix or 'the module'}: has gates {', '.join(sorted(gates))}, which no module of Burn has")


def _is_transposed(
    tensors: dict[str, Tensor],
    modules: dict[str, dict[str, str]],
    kinds: dict[str, str],
    options: Options,
    source: Source,
) -> bool:
    """Whether weights are [outputs, inputs] as in PyTorch: by their shapes, or else by the kind of file."""
    said: dict[bool, str] = {}
    for prefix, found in modules.items():
        gate = BURN_GATES[kinds[prefix]][0]
        hidden = parameter(tensors, found[f"{gate}.hidden.weight"], (None, None))
        name = found[f"{gate}.input.weight"]
        weight = parameter(tensors, name, (None, None), hidden)
        units = hidden.shape[0]
        if hidden.shape[1] != units or units not in weight.shape:
            raise FormatError(f"{name} has shape {list(weight.shape)} and its hidden_transform {list(hidden.shape)}")
        if weight.shape[0] != weight.shape[1]:
            said.setdefault(weight.shape[0] == units, name)
    if len(said) > 1:
        raise FormatError(f"{said[True]} is laid out as in PyTorch, [outputs, inputs], but {said[False]} as in Burn")
    asked = options.word("layout", ("burn", "pytorch"))
    if said:
        found_layout = "pytorch" if True in said else "burn"
        if asked not in (None, found_layout):
            raise FormatError(
                f"{next(iter(said.values()))} is laid out as in {found_layout}, not as option layout says"
            )
        return True in said
    if asked is None:
        asked = "pytorch" if options.container == "torch" else "burn"
        source.notes.append(
            "all weights are square, so that nothing says how they lie: "
            + ("[outputs, inputs]" if asked == "pytorch" else "[inputs, outputs], Burn's own,")
            + f" is assumed; option layout={'burn' if asked == 'pytorch' else 'pytorch'} says otherwise"
        )
    return asked == "pytorch"


def _direction(tensors: dict[str, Tensor], found: dict[str, str], kind: str, transposed: bool) -> Direction:
    gates = BURN_GATES[kind]
    like = tensors[found[f"{gates[0]}.hidden.weight"]]
    units = like.shape[0]
    first = tensors[found[f"{gates[0]}.input.weight"]]
    inputs = first.shape[1 if transposed else 0]

    def rows(side: str, columns: int) -> Tensor:
        shape = (units, columns) if transposed else (columns, units)
        parts = [parameter(tensors, found[f"{gate}.{side}.weight"], shape, like) for gate in gates]
        return torch.cat(parts if transposed else [part.T for part in parts]).contiguous()

    def bias(side: str) -> Tensor | None:
        names = [found.get(f"{gate}.{side}.bias") for gate in gates]
        if not any(names):
            return None
        parts = [like.new_zeros(units) if name is None else parameter(tensors, name, (units,), like) for name in names]
        return torch.cat(parts)

    direction = Direction(rows("input", inputs), rows("hidden", units), bias("input"), bias("hidden"))
    if direction.bias_x is None and direction.bias_h is not None:
        direction.bias_x = torch.zeros_like(direction.bias_h)
    return direction


def _pairs(modules: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """Modules by name; a Bi module becomes its forward and its reverse module."""
    pairs: dict[str, list[str]] = {}
    for prefix in modules:
        base, _, last = prefix.rpartition(".")
        forward, reverse = (f"{base}.{word}".lstrip(".") for word in ("forward", "reverse"))
        if last in ("forward", "reverse") and forward in modules and reverse in modules:
            pairs.setdefault(base or "(root)", [forward, reverse])
        else:
            pairs[prefix or "(root)"] = [prefix]
    return pairs


def _layer(name: str, directions: list[Direction], kinds: Sequence[str], options: Options) -> Layer:
    first = directions[0]
    if len(directions) == 2:
        second = directions[1]
        same = first.weight_x.shape == second.weight_x.shape and first.weight_x.dtype == second.weight_x.dtype
        if kinds[0] != kinds[1] or not same:
            raise FormatError(f"{name}: its two directions are of different kinds, sizes or dtypes")
        second.reverse = True
    else:
        first.reverse = options.flag("reverse", False)
        if first.reverse and kinds[0] == "GRU":
            raise FormatError(f"{name}: option reverse is of an Lstm and an Rnn; a Gru of Burn runs forward")
    inner = options.activation("activation", TANH)
    coupled = kinds[0] == "LSTM" and options.flag("coupled_input_forget", False)
    return Layer(
        name,
        kinds[0],
        directions,
        reset_after=options.flag("reset_after", True),
        gate_activation=options.activation("gate_activation", SIGMOID),
        activation=inner,
        output_activation=options.activation("output_activation", TANH),
        cell_clip=options.number("cell_clip"),
        coupled="input" if coupled else "",
    )


def _parametric(tensors: dict[str, Tensor], layer: Layer, parts: list[str], used: set[str]) -> None:
    """Activations whose parameters are in the record: a PRelu of one slope is a leaky ReLU."""
    for part in parts:
        for field, ours in ACTIVATIONS[layer.kind].items():
            head = f"{part}.{field}.".lstrip(".")
            for name in [name for name in tensors if name.startswith(head)]:
                slope = tensors[name].flatten()
                if not re.fullmatch(r"(?:PRelu\.)?alpha", name.removeprefix(head)) or not slope.is_floating_point():
                    raise FormatError(f"{name}: is of an activation that can't be expressed here")
                if slope.numel() == 0 or (slope != slope[0]).any():
                    raise FormatError(f"{name}: is a PRelu with a slope for each unit, which can't be expressed here")
                if len(parts) == 2 and not torch.equal(
                    slope, tensors.get(name.replace(part, parts[0], 1), slope).flatten()
                ):
                    raise FormatError(f"{name}: differs from the other direction's")
                setattr(layer, ours, activation("leaky_relu", float(slope[0])))
                used.add(name)


def _follow(source: Source) -> None:
    """Takes layers of one Vec (names with consecutive numbers) for a stack."""
    for before, layer in zip(source.layers, source.layers[1:], strict=False):
        (base, _, first), (other, _, second) = before.name.rpartition("."), layer.name.rpartition(".")
        counts = base == other and first.isdecimal() and second.isdecimal() and len(second) < 10
        if counts and int(second) == int(first) + 1 and before.output_size == layer.input_size:
            layer.continues = True
    if any(layer.continues for layer in source.layers):
        source.notes.append("layers whose names count up and whose sizes fit are taken to feed each other")


def _assumptions(source: Source, options: Options) -> None:
    kinds = {layer.kind for layer in source.layers}
    said = {
        "reset_after": ("true", "GRU"),
        "gate_activation": ("sigmoid", "GRU LSTM"),
        "activation": ("tanh", "GRU LSTM RNN"),
        "output_activation": ("tanh", "LSTM"),
        "coupled_input_forget": ("false", "LSTM"),
        "cell_clip": ("none", "GRU LSTM RNN"),
    }
    assumed = [f"{name} {value}" for name, (value, of) in said.items() if name not in options and kinds & {*of.split()}]
    single = any(len(layer.directions) == 1 and layer.kind != "GRU" for layer in source.layers)
    if single and "reverse" not in options:
        assumed.append("reverse false")
    if assumed:
        source.notes.append(
            f"a record doesn't say how its modules are configured; Burn's defaults are assumed: {', '.join(assumed)}; "
            "options say otherwise"
        )
