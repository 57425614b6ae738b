"""A trace of an implementation that can't be run here: arrays x, y, and some more."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from weft.formats._files.tensors import parameter, write_tensors
from weft.formats._layers import FormatError, Source, Trace
from weft.formats._options import Options

OPTIONS: tuple[str, ...] = ()

_GATES = "rznifgoc"
_STATES = ("h0", "c0", "hn", "cn")


def layers_of(tensors: dict[str, Tensor], options: Options) -> Source | None:
    """A trace: x [T, B, I], y [T, B, D*H], and maybe h0, c0, hn, cn ([B, H] or [layers*D, B, H]) and gates [T, B, H],
    named r, z, n, i, f, g, o, c or gate_r, ..., or all in one array, gates [T, B, G*H] or [T, B, G, H]. All of them may
    lack B: a batch of one.

    Raises:
        FormatError: shapes that don't belong together.
    """
    if not {"x", "y"} <= tensors.keys():
        return None
    gates = {gate: name for gate in (*_GATES, "gates") for name in tensors if _gate(name) == gate}
    own = {name: tensors[name] for name in tensors if name in ("x", "y", *_STATES)}
    if tensors["x"].dim() == 2 and tensors["y"].dim() == 2:
        own, tensors = _batched(own), tensors | _batched({name: tensors[name] for name in gates.values()})
    x, y = parameter(own, "x"), parameter(own, "y")
    if x.dim() != 3 or y.dim() != 3:
        raise FormatError(
            f"x has shape {list(x.shape)} and y {list(y.shape)}; a trace has x [T, B, I] and y [T, B, H], steps first"
        )
    steps, batch = x.shape[:2]
    if y.shape[:2] != x.shape[:2]:
        raise FormatError(_mismatch(x, y))
    states = {name: _state(own, name, batch) for name in _STATES if name in own}
    values = {gate: _gate_values(tensors, name, steps, batch) for gate, name in gates.items()}
    for gate, value in values.items():
        if gate != "gates" and (not value.shape[2] or y.shape[2] % value.shape[2]):
            raise FormatError(
                f"{gates[gate]} has {value.shape[2]} units; y has {y.shape[2]} columns (units times directions), "
                "which is no multiple of that"
            )
    ignored = sorted(tensors.keys() - own.keys() - set(gates.values()))
    return Source("", "trace", [], Trace(x, y, gates=values, **states), ignored=ignored)


def write(trace: Trace, path: Path) -> list[str]:
    """Writes a trace; see `layers_of` for the names."""
    tensors = {"x": trace.x, "y": trace.y}
    tensors |= {name: value for name in _STATES if (value := getattr(trace, name)) is not None}
    write_tensors(tensors | dict(trace.gates), path)
    return []


def _batched(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """x [T, I] as [T, 1, I], h0 [H] as [1, H]."""
    return {
        name: tensor.unsqueeze(0 if name in _STATES and tensor.dim() == 1 else 1) for name, tensor in tensors.items()
    }


def _gate_values(tensors: dict[str, Tensor], name: str, steps: int, batch: int) -> Tensor:
    if tensors[name].dim() == 4:
        return parameter(tensors, name, (steps, batch, None, None)).flatten(2)
    return parameter(tensors, name, (steps, batch, None))


def _gate(name: str) -> str:
    if name == "gates":
        return name
    short = name.removeprefix("gate_").removeprefix("gate.").removeprefix("gates.")
    return short if len(short) == 1 and short in _GATES else ""


def _state(tensors: dict[str, Tensor], name: str, batch: int) -> Tensor:
    state = parameter(tensors, name)
    if state.dim() not in (2, 3) or state.shape[-2] != batch:
        raise FormatError(
            f"{name} has shape {list(state.shape)}; with {batch} rows of the batch in x, [{batch}, H] or "
            f"[layers*directions, {batch}, H] is expected"
        )
    return state


def _mismatch(x: Tensor, y: Tensor) -> str:
    text = f"x has shape {list(x.shape)} and y {list(y.shape)}; a trace has x [T, B, I] and y [T, B, H]"
    if (y.shape[1], y.shape[0]) == tuple(x.shape[:2]):
        return f"{text}: one of the two has the batch first; transpose it"
    if x.shape[2] == y.shape[2] and x.shape[0] == y.shape[0]:
        return f"{text}; if they are [B, I, T] and [B, H, T], transpose both"
    return f"{text}: the same T and B"
