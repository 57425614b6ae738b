"""PyTorch's state dicts: the parameters of nn.GRU, LSTM, RNN and their cells anywhere in a model, and `weft.nn`'s."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from weft.formats._beside import beside, parts_of
from weft.formats._files.tensors import parameter, write_tensors
from weft.formats._layers import SIGMOID, TANH, Direction, FormatError, Layer, Source
from weft.formats._options import Options
from weft.formats._stacks import stacks_of

OPTIONS = (
    "module", "reset_after", "gate_activation", "activation", "output_activation", "nonlinearity", "cell_clip",
    "coupled_input_forget", "zoneout",
)  # fmt: skip

_PARAMETERS = (
    "weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr", "weight_ci", "weight_cf", "weight_co",
    "weight_ln_ih", "weight_ln_hh", "weight_ln_c", "bias_ln_c",
)  # fmt: skip
_NAME = re.compile(rf"(?:(.*)\.)?({'|'.join(_PARAMETERS)})(?:_l(\d{{1,4}})(_reverse)?)?", re.DOTALL)
#: Prefixes that a checkpoint or a wrapper adds to a model's names.
_WRAPPERS = re.compile(r"^(?:(?:state_dict|model_state_dict|module|_orig_mod)\.)+|(?<=\.)_orig_mod\.")
#: Keys of a checkpoint under which there are copies of the model.
_COPIES = re.compile(r"(?:^|_)(?:ema|avg|average|averaged|swa|shadow|best|old)(?:_|$)")
_KINDS = {1: "RNN", 3: "GRU", 4: "LSTM"}
_EPS = 1e-5  # of weft.nn's layer normalisation


def layers_of(tensors: dict[str, Tensor], options: Options) -> Source | None:
    """The recurrent modules in a state dict, each one's layers in order. The modules come in the order of the names.

    Raises:
        FormatError: a module's parameters don't fit each other, or some are missing.
    """
    tensors, notes = _folded(tensors)
    wanted = options.text("module")
    modules: dict[str, dict[tuple[int, bool] | None, dict[str, str]]] = {}
    used = set()
    for name in tensors:
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        prefix, kind, layer, reverse = match.groups()
        index = None if layer is None else (int(layer), reverse is not None)
        modules.setdefault(prefix or "", {}).setdefault(index, {})[kind] = name
    modules = {prefix: found for prefix, found in modules.items() if any("weight_hh" in own for own in found.values())}
    modules = _without_copies(modules, notes)
    if wanted is not None and modules:
        modules = _chosen(modules, wanted)
    layers = []
    for prefix, found in modules.items():
        layers += _module_layers(tensors, prefix, found, options)
        used |= {name for own in found.values() for name in own.values()}
    if not layers:
        return None
    if any(layer.kind == "RNN" for layer in layers) and not {"activation", "nonlinearity"} & options.values.keys():
        notes.append(
            "a state dict doesn't say which nonlinearity an RNN has: tanh is assumed; option nonlinearity=relu says "
            "otherwise"
        )
    ignored = [name for name in tensors if name not in used]
    cells = [parts_of(prefix) if prefix else () for prefix in modules]
    return Source("", "pytorch", layers, notes=notes, ignored=ignored, unused=beside(ignored, cells))


def module_name(prefix: str) -> str:
    """A module's name in its model, given its prefix in a state dict."""
    return _WRAPPERS.sub("", f"{prefix}.").removesuffix(".") or "(root)"


def _without_copies(modules: dict[str, dict], notes: list[str]) -> dict[str, dict]:
    """The state dict without an averaged model, which a checkpoint may hold beside the model."""
    by_head: dict[str, set[str]] = {}
    for prefix in modules:
        head, _, rest = prefix.partition(".")
        by_head.setdefault(head, set()).add(module_name(rest))
    copies = {
        head
        for head, names in by_head.items()
        if _COPIES.search(head) and any(names == other for h, other in by_head.items() if not _COPIES.search(h))
    }
    notes += [f"{head} holds a copy of the model, which is left out; option module={head} reads it" for head in copies]
    return {prefix: found for prefix, found in modules.items() if prefix.partition(".")[0] not in copies} or modules


def _chosen(modules: dict[str, dict], wanted: str) -> dict[str, dict]:
    chosen = {
        prefix: found
        for prefix, found in modules.items()
        if any(f"{name}.".startswith(f"{wanted}.") for name in (prefix, module_name(prefix)))
    }
    if not chosen:
        raise FormatError(f"has no recurrent module {wanted!r}; it has {', '.join(map(module_name, modules))}")
    return chosen


def _folded(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Replaces parametrised weights by the weights that they stand for, under these weights' names."""
    found, notes = dict(tensors), []
    for name in tensors:
        plain, role = _parametrised(name)
        if role == "":
            continue
        if role not in _FOLDS:
            raise FormatError(
                f"{name} is what a parametrization makes {plain} of, which a state dict doesn't say how; "
                "torch.nn.utils.parametrize.remove_parametrizations before it is saved"
            )
        what, other, fold = _FOLDS[role]
        second = name.removesuffix(role) + other
        if second not in found:
            continue
        a = parameter(found, name)
        try:
            b = parameter({second: found[second].to(a.dtype)}, second)
            found[plain] = fold(a, b)
        except RuntimeError:
            raise FormatError(f"{name} and {second} don't have the shapes that {what} makes") from None
        del found[name], found[second]
        notes.append(f"{plain} is computed from {name} and {second} as {what} does")
    return found, notes


def _parametrised(name: str) -> tuple[str, str]:
    """For a part of a parametrised recurrent weight: the weight's name, and the suffix; "" for other names, and for the
    second part."""
    head, _, last = name.rpartition(".")
    before, _, weight = head.rpartition(".")
    if last in ("original", "original0", "original1") and before.endswith("parametrizations"):
        plain = before.removesuffix("parametrizations") + weight
        return (plain, last) if _NAME.fullmatch(plain) and last != "original1" else (plain, "")
    for suffix in ("_g", "_orig"):
        if name.endswith(suffix) and _NAME.fullmatch(name.removesuffix(suffix)):
            return name.removesuffix(suffix), suffix
    return name, ""


def _weight_norm(g: Tensor, v: Tensor) -> Tensor:
    if g.dim() == 0:
        return v * (g / v.norm())
    dims = [i for i in range(g.dim()) if g.shape[i] != 1]
    if g.dim() != v.dim() or len(dims) > 1:
        raise RuntimeError
    dim = dims[0] if dims else 0
    return v * (g / v.norm(dim=[i for i in range(v.dim()) if i != dim], keepdim=True))


#: By the suffix of the first part: the parametrisation, the suffix of the second part, and the function that makes the
#: weight of both.
_FOLDS: dict[str, tuple[str, str, Callable[[Tensor, Tensor], Tensor]]] = {
    "original0": ("weight_norm", "original1", _weight_norm),
    "_g": ("weight_norm", "_v", _weight_norm),
    "_orig": ("pruning", "_mask", torch.mul),
}


def _module_layers(
    tensors: dict[str, Tensor], prefix: str, found: dict[tuple[int, bool] | None, dict[str, str]], options: Options
) -> list[Layer]:
    name = module_name(prefix)
    if None in found:
        if len(found) > 1:
            raise FormatError(f"{name}: has parameters of a cell (weight_hh) and of a module (weight_hh_l0)")
        return [_layer(name, [_direction(tensors, found[None], False)], False, found[None], options)]
    numbers = sorted({number for number, _ in found})
    if numbers != list(range(len(numbers))):
        raise FormatError(f"{name}: has layers {', '.join(map(str, numbers))}, where layers count from 0 without gaps")
    layers: list[Layer] = []
    for number in numbers:
        own = [found[number, reverse] for reverse in (False, True) if (number, reverse) in found]
        if (number, False) not in found:
            raise FormatError(f"{name}: layer {number} has a reverse direction and no forward one")
        directions = [_direction(tensors, names, i == 1) for i, names in enumerate(own)]
        label = name if len(numbers) == 1 else f"l{number}" if name == "(root)" else f"{name}.l{number}"
        layers.append(_layer(label, directions, number > 0, own[0], options))
        _check_fits(layers, own[0]["weight_ih"])
    return layers


def _check_fits(layers: list[Layer], name: str) -> None:
    last, first = layers[-1], layers[0]
    if last.kind != first.kind or len(last.directions) != len(first.directions):
        raise FormatError(f"{name}: its layer is another kind than the module's first")
    if len(layers) > 1 and last.input_size != layers[-2].output_size:
        raise FormatError(
            f"{name} has {last.input_size} columns, where the layer before has {layers[-2].output_size} outputs"
        )
    sizes = {(d.weight_x.shape, d.weight_h.shape, d.weight_x.dtype) for d in last.directions}
    if len(sizes) > 1:
        raise FormatError(f"{name} and its reverse direction have different shapes or dtypes")


def _direction(tensors: dict[str, Tensor], names: dict[str, str], reverse: bool) -> Direction:
    for needed in ("weight_ih", "weight_hh"):
        if needed not in names:
            present = next(iter(names.values()))
            raise FormatError(f"{present} has no {needed} beside it")
    weight_x = parameter(tensors, names["weight_ih"], (None, None))
    rows = weight_x.shape[0]

    def get(kind: str, *shape: int | None) -> Tensor | None:
        return parameter(tensors, names[kind], shape, weight_x) if kind in names else None

    projection = get("weight_hr", None, None)
    outputs = projection.shape[0] if projection is not None else None
    weight_h = get("weight_hh", rows, outputs)
    assert weight_h is not None
    units = projection.shape[1] if projection is not None else weight_h.shape[1]
    if rows % units or rows // units not in _KINDS or (projection is not None and rows != 4 * units):
        raise FormatError(
            f"{names['weight_hh']} has shape {list(weight_h.shape)}; with {units} units an RNN has {units} rows, a GRU "
            f"{3 * units}, an LSTM {4 * units}"
        )
    if ("bias_ih" in names) != ("bias_hh" in names):
        raise FormatError(f"{names['weight_ih']} has one of bias_ih and bias_hh beside it; both or none are expected")
    return Direction(
        weight_x,
        weight_h,
        get("bias_ih", rows),
        get("bias_hh", rows),
        projection,
        _peepholes(get, weight_x, units),
        get("weight_ln_ih", rows),
        get("weight_ln_hh", rows),
        get("weight_ln_c", units),
        get("bias_ln_c", units),
        reverse=reverse,
    )


def _peepholes(get: Callable[..., Tensor | None], like: Tensor, units: int) -> Tensor | None:
    """The peepholes [3, H]. A gate that is coupled to another has none."""
    own = [get(f"weight_c{gate}", units) for gate in "ifo"]
    if all(tensor is None for tensor in own):
        return None
    return torch.stack([like.new_zeros(units) if tensor is None else tensor for tensor in own])


def _layer(name: str, directions: list[Direction], continues: bool, names: dict[str, str], options: Options) -> Layer:
    first = directions[0]
    units = first.weight_h.shape[1] if first.projection is None else first.projection.shape[1]
    kind = _KINDS[first.weight_h.shape[0] // units]
    nonlinearity = options.word("nonlinearity", ("tanh", "relu"), "tanh") if kind == "RNN" else "tanh"
    activation = options.activation("activation", dataclasses.replace(TANH, name=nonlinearity))
    normed = {"weight_ln_ih", "weight_ln_hh"} & names.keys()
    if len(normed) == 1:
        raise FormatError(f"{name}: has one of weight_ln_ih and weight_ln_hh; both or none are expected")
    if (normed and (first.norm_c is None) == (kind == "LSTM")) or (not normed and first.norm_c is not None):
        raise FormatError(f"{name}: layer normalisation of an LSTM has weight_ln_ih, weight_ln_hh and weight_ln_c")
    if kind != "LSTM" and first.peepholes is not None:
        raise FormatError(f"{name}: has peepholes, which only an LSTM has")
    p = options.number("zoneout", 0.0) or 0.0
    return Layer(
        name,
        kind,
        directions,
        continues,
        reset_after=options.flag("reset_after", True),
        gate_activation=options.activation("gate_activation", SIGMOID),
        activation=activation,
        output_activation=options.activation("output_activation", activation if kind == "LSTM" else TANH),
        cell_clip=options.number("cell_clip"),
        coupled=_coupling(name, kind, names, options),
        norm_eps=_EPS if normed else None,
        zoneout=(p, p if kind == "LSTM" else 0.0),
    )


def _coupling(name: str, kind: str, names: dict[str, str], options: Options) -> str:
    """The coupling, by the peepholes that exist, or else by the option."""
    if kind != "LSTM":
        return ""
    given = {"true": "input", "false": ""}.get(str(options.text("coupled_input_forget", "false")).lower())
    if given is None:
        given = options.word("coupled_input_forget", ("input", "forget"))
    present = "".join(gate for gate in "ifo" if f"weight_c{gate}" in names)
    if not present:
        return given
    told = {"ifo": given, "io": "input", "fo": "forget"}.get(present)
    if told is None or (given and told != given) or (present == "ifo" and given):
        raise FormatError(
            f"{name}: has peepholes of {', '.join(present)}; all three are expected, or i and o where input and forget "
            "gate are coupled (coupled_input_forget=input), or f and o (forget)"
        )
    return told


def write(layers: list[Layer], path: Path) -> list[str]:
    """Writes a state dict: of the one module that holds the layers, or of several with their names before it.

    What only `weft.nn` has is written with its names, and a note gives the constructor.

    Raises:
        FormatError: what no module of PyTorch's or `weft.nn` can be.
    """
    stacks = stacks_of("a PyTorch state dict", layers)
    tensors: dict[str, Tensor] = {}
    for stack in stacks:
        prefix = f"{stack.name}." if stack.name else ""
        tensors |= {prefix + name: tensor for name, tensor in stack.state_dict().items()}
    write_tensors(tensors, path)
    return [note for stack in stacks for note in (*stack.notes(), *stack.configuration_note())]
