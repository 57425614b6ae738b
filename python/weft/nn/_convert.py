"""`weft.nn.convert`: PyTorch's recurrent modules in a model become Weft's, in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, overload

import torch
from torch import nn
from torch.nn.utils import parametrize

from weft._base.words import did_you_mean
from weft.nn import _options
from weft.nn._activations import Activation
from weft.nn._modules import GRU, LSTM, RNN
from weft.nn._variant import Variant

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Options(TypedDict, total=False):
    """The options of `weft.nn.GRU`, `LSTM` and `RNN` that PyTorch's modules lack."""

    reset_after: bool
    gate_activation: Activation
    activation: Activation | None
    cell_clip: float | None
    peepholes: bool
    coupled_input_forget: bool | str
    layer_norm: bool
    zoneout: float | tuple[float, float]
    recurrent_dropout: float


_CLASSES: dict[type[nn.RNNBase], type[Variant]] = {nn.GRU: GRU, nn.LSTM: LSTM, nn.RNN: RNN}


@dataclasses.dataclass(frozen=True)
class Converted:
    """One module that was replaced."""

    name: str  #: its name in the model, "" for the root; the first if it has several
    kind: str  #: GRU, LSTM or RNN
    module: nn.RNNBase

    def __str__(self) -> str:
        return f"{self.name or '(root)'}: {self.kind}"


class ConvertReport(Sequence[Converted]):
    """The result of `convert`: a sequence of `Converted`. Its text names all modules, and says so if there were
    none."""

    def __init__(self, model: nn.Module, converted: list[Converted], skipped: dict[str, str]) -> None:
        self.model = model  #: the model given, changed in place
        self.skipped = skipped  #: recurrent modules left as they are: the reason, by name
        self._converted = converted

    @property
    def names(self) -> list[str]:
        """The names of the modules that were replaced."""
        return [entry.name for entry in self]

    @overload
    def __getitem__(self, index: int) -> Converted: ...
    @overload
    def __getitem__(self, index: slice) -> list[Converted]: ...
    def __getitem__(self, index: int | slice) -> Converted | list[Converted]:
        return self._converted[index]

    def __len__(self) -> int:
        return len(self._converted)

    def __contains__(self, value: object) -> bool:
        """Takes a name as well as an entry."""
        return value in self._converted or value in self.names

    def __iter__(self) -> Iterator[Converted]:
        return iter(self._converted)

    def __str__(self) -> str:
        if self:
            lines = [f"weft.nn.convert: replaced {len(self)} module{'s' if len(self) > 1 else ''}"]
        else:
            lines = ["weft.nn.convert: nothing to replace: no nn.GRU, nn.LSTM or nn.RNN"]
        lines += [f"  {entry}" for entry in self]
        lines += [f"  {name or '(root)'}: left as it is: {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)

    __repr__ = __str__


def convert(model: nn.Module, **options: Unpack[Options]) -> ConvertReport:
    """Makes every `nn.GRU`, `nn.LSTM` and `nn.RNN` of `model`, itself included, a `weft.nn` one with these options.

    In place and without a copy: each module stays the object that it was, its class becomes `weft.nn`'s. So its
    Parameters are the same (optimisers stay valid), and it keeps its hooks, parametrizations, training flag and every
    place that refers to it. Parameters that an option adds begin where they change nothing (peepholes 0) or as
    `reset_parameters` has them (gains of layer_norm 1), with weight_hh's requires_grad; give them to the optimiser.

    Args:
        model: any module. A subclass of PyTorch's recurrent modules has a forward of its own and is left as it is, and
            so is a `weft.nn` module; the report names them.
        options: those of `weft.nn.GRU`, `LSTM` and `RNN`, without PyTorch's.

    Returns:
        What was replaced, by name; print it. Its `model` is the model.

    Raises:
        TypeError: `model` is no module.
        ValueError: an option that a module found in the model doesn't have, or a bad value; nothing is changed then.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"weft.nn.convert: expected a torch.nn.Module, got: {type(model).__name__}")
    found: list[tuple[str, nn.RNNBase, type[Variant]]] = []
    skipped: dict[str, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, Variant):
            skipped[name] = "is a weft.nn module already"
        elif isinstance(module, nn.RNNBase):
            plain = parametrize.type_before_parametrizations(module)
            if plain in _CLASSES:
                found.append((name, module, _CLASSES[plain]))
            else:
                skipped[name] = f"{plain.__name__} is a class of its own"
    given: dict[str, Any] = {**options}
    _check(found, given)
    for _, module, target in found:
        _become(module, target, _options.OPTIONS[target.kind] | given)
    return ConvertReport(model, [Converted(name, target.kind, module) for name, module, target in found], skipped)


def _check(found: list[tuple[str, nn.RNNBase, type[Variant]]], options: dict[str, Any]) -> None:
    known = set().union(*_options.OPTIONS.values())
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) or f"; there are {', '.join(sorted(known))}"
            raise ValueError(f"weft.nn.convert: there is no option {option!r}{hint}")
    for name, _, target in found:
        own = _options.OPTIONS[target.kind]
        for option in options:
            if option not in own:
                raise ValueError(
                    f"weft.nn.convert: '{name}' is a {target.kind}, which has no option {option!r}; it has "
                    f"{', '.join(own)}. Convert the parts of the model one by one"
                )
        _options.check(target.kind, own | options)
        _options.programs(own | options)


def _become(module: nn.RNNBase, target: type[Variant], options: dict[str, Any]) -> None:
    if parametrize.is_parametrized(module):
        # parametrize has put a class, with a property for each parameter, between the module and its own class.
        between = type(module)
        body = {name: value for name, value in vars(between).items() if name not in ("__dict__", "__weakref__")}
        module.__class__ = type(f"Parametrized{target.__name__}", (target,), body)
    else:
        module.__class__ = target
    assert isinstance(module, Variant)
    weight = module._flat_weights[0]
    module._set_variant(options)
    with torch.no_grad():
        module._reset_extra_parameters(peephole_range=0.0)
    for names in module._extra_names:
        for name in names:
            getattr(module, name).requires_grad_(weight.requires_grad)
