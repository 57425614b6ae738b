"""The common parts of `weft.nn`'s modules: options, parameters, checks.

The operator `weft::_rnn_variant` (pytorch/override) writes the program and draws the masks.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import Parameter
from torch.nn.utils.rnn import PackedSequence

from weft.nn import _options

State = Tensor | tuple[Tensor, Tensor]


class Variant(nn.RNNBase):
    """A base of the modules, listed before PyTorch's class."""

    kind: ClassVar[str]

    def _set_variant(self, options: dict[str, Any]) -> None:
        """Takes checked options and registers the parameters that they bring."""
        _options.check(self.kind, options)
        programs = _options.programs(options)
        for name, value in options.items():
            setattr(self, name, value)
        self._programs = programs
        self._extra_names: list[list[str]] = []
        like = self._flat_weights[0]
        for names in self._all_weights:
            suffix = names[0].removeprefix("weight_ih")
            shapes = self._extra_shapes()
            for name, size in shapes.items():
                setattr(self, name + suffix, Parameter(torch.empty(size, device=like.device, dtype=like.dtype)))
            self._extra_names.append([name + suffix for name in shapes])

    def _extra_shapes(self) -> dict[str, int]:
        """The shapes of a layer's and direction's parameters that PyTorch lacks: a vector each, in the operator's
        order."""
        shapes: dict[str, int] = {}
        if getattr(self, "peepholes", False):
            shapes |= {f"weight_c{gate}": self.hidden_size for gate in self._peephole_gates()}
        if self.layer_norm:
            rows = self._flat_weights[0].shape[0]
            shapes |= {"weight_ln_ih": rows, "weight_ln_hh": rows}
            if self.kind == "LSTM":
                shapes["weight_ln_c"] = self.hidden_size
                if self.bias:
                    shapes["bias_ln_c"] = self.hidden_size
        return shapes

    def _peephole_gates(self) -> str:
        return {"input": "io", "forget": "fo"}.get(self._coupling(), "ifo")

    def _coupling(self) -> str:
        """ "", "input" (f = 1 - i) or "forget" (i = 1 - f)."""
        coupled = getattr(self, "coupled_input_forget", False)
        return coupled if isinstance(coupled, str) else "input" if coupled else ""

    def reset_parameters(self) -> None:
        """PyTorch's initialisation, U(-1/sqrt(H), 1/sqrt(H)), for peepholes too; gains of layer_norm 1, biases 0."""
        super().reset_parameters()
        self._reset_extra_parameters(peephole_range=self.hidden_size**-0.5)

    def _reset_extra_parameters(self, peephole_range: float) -> None:
        for names in getattr(self, "_extra_names", ()):  # the names aren't there yet while PyTorch's constructor runs
            for name in names:
                parameter = getattr(self, name)
                if name.startswith("weight_c"):
                    nn.init.uniform_(parameter, -peephole_range, peephole_range)
                else:
                    nn.init.constant_(parameter, 1.0 if name.startswith("weight") else 0.0)

    def _is_plain(self) -> bool:
        """Whether PyTorch's module computes the same now."""
        for name, default in _options.OPTIONS[self.kind].items():
            if getattr(self, name) != default and not (name == "recurrent_dropout" and not self.training):
                return False
        return True

    def __prepare_scriptable__(self) -> nn.Module:
        """The module that torch.jit.script compiles in the place of this one: PyTorch's, with the same parameters, if
        it computes the same. (PyTorch also puts it into the model that is scripted.)

        Raises:
            RuntimeError: PyTorch's module computes something else.
        """
        options = _options.OPTIONS[self.kind]
        if used := [name for name, default in options.items() if getattr(self, name) != default]:
            raise RuntimeError(
                f"torch.jit.script can't compile weft.nn.{self.kind} with {', '.join(used)}; torch.jit.trace, "
                "torch.export and torch.compile can"
            )
        plain = next(base for base in type(self).__mro__ if not issubclass(base, Variant))
        module = plain.__new__(plain)
        module.__dict__ = {name: value for name, value in self.__dict__.items() if name not in options}
        del module.__dict__["_programs"], module.__dict__["_extra_names"]
        return module

    def _run(self, input: Any, hx: Any, is_init: Tensor | None) -> tuple[Any, Any]:
        """The forward of a variant; checks and errors are those of PyTorch's modules."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx, is_init)
        if input.dim() not in (2, 3):
            tensor = " tensor" if self.kind == "RNN" else ""  # PyTorch's wording
            raise ValueError(f"{self.kind}: Expected input to be 2D or 3D, got {input.dim()}D{tensor} instead")
        is_batched = input.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        states = self._states(hx, input, is_batched)
        if not is_batched:
            input = input.unsqueeze(batch_dim)
        batch = input.size(batch_dim)
        if not states:
            states = self._zeros(batch, input)
        self.check_forward_args(input, states if self.kind == "LSTM" else states[0], None)
        is_init = self._check_is_init(is_init, input, is_batched, batch_dim)
        outputs = self._call(input, None, states, is_init)
        if not is_batched:
            outputs = [outputs[0].squeeze(batch_dim), *(state.squeeze(1) for state in outputs[1:])]
        return outputs[0], self._state_of(outputs)

    def _run_packed(self, packed: PackedSequence, hx: Any, is_init: Tensor | None) -> tuple[Any, Any]:
        if is_init is not None:
            raise ValueError(
                f"weft.nn.{self.kind}: is_init with a PackedSequence, in which every sequence has a place of its own: "
                "pack the episodes as sequences, or pad (torch.nn.utils.rnn.pad_packed_sequence)"
            )
        data, batch_sizes, sorted_indices, unsorted_indices = packed
        if hx is None:
            states = self._zeros(batch_sizes[0], data)
        else:
            states = self.permute_hidden(hx, sorted_indices)
            states = tuple(states) if self.kind == "LSTM" else (states,)
        self.check_forward_args(data, states if self.kind == "LSTM" else states[0], batch_sizes)
        outputs = self._call(data, batch_sizes, states, None)
        state = self.permute_hidden(self._state_of(outputs), unsorted_indices)
        return PackedSequence(outputs[0], batch_sizes, sorted_indices, unsorted_indices), state

    def _call(self, input: Tensor, batch_sizes: Tensor | None, states: Any, is_init: Tensor | None) -> list[Tensor]:
        parameters = [
            getattr(self, name)
            for own, extra in zip(self._all_weights, self._extra_names, strict=True)
            for name in (*own, *extra)
        ]
        key = "f64" if input.dtype == torch.float64 else "f32"
        zoneout = self.zoneout if isinstance(self.zoneout, tuple | list) else (self.zoneout, self.zoneout)
        return torch.ops.weft._rnn_variant(
            input,
            batch_sizes,
            list(states),
            parameters,
            is_init,
            self.mode.lower(),
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
            self.batch_first,
            getattr(self, "reset_after", True),
            self._programs["gate_activation"][key] if "gate_activation" in self._programs else "sigmoid",
            self._programs["activation"][key] if "activation" in self._programs else self.mode.lower()[4:],
            0.0 if self.cell_clip is None else float(self.cell_clip),
            getattr(self, "peepholes", False),
            self._coupling(),
            self.layer_norm,
            float(zoneout[0]),
            float(zoneout[1]) if self.kind == "LSTM" else 0.0,
            float(self.recurrent_dropout),
        )

    def _states(self, hx: Any, input: Tensor, is_batched: bool) -> tuple[Tensor, ...]:
        """The given states with a batch dim; () if there are none."""
        if hx is None:
            return ()
        dims, wanted = ("3-D", 3) if is_batched else ("2-D", 2)
        call = "batched 3-D" if is_batched else "unbatched 2-D"
        if self.kind == "LSTM":
            if hx[0].dim() != wanted or hx[1].dim() != wanted:
                raise RuntimeError(
                    f"For {call} input, hx and cx should also be {dims} but got "
                    f"({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
                )
            states = tuple(hx)
        else:
            if hx.dim() != wanted:
                raise RuntimeError(f"For {call} input, hx should also be {dims} but got {hx.dim()}-D tensor")
            states = (hx,)
        return states if is_batched else tuple(state.unsqueeze(1) for state in states)

    def _zeros(self, batch: Any, like: Tensor) -> tuple[Tensor, ...]:
        rows = self.num_layers * (2 if self.bidirectional else 1)
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)
        return tuple(
            torch.zeros(rows, batch, size, dtype=like.dtype, device=like.device)
            for size in (sizes if self.kind == "LSTM" else sizes[:1])
        )

    def _check_is_init(self, is_init: Tensor | None, input: Tensor, is_batched: bool, batch_dim: int) -> Tensor | None:
        """The mask as [T,B]."""
        if is_init is None:
            return None
        if not isinstance(is_init, Tensor) or is_init.dtype != torch.bool:
            found = is_init.dtype if isinstance(is_init, Tensor) else type(is_init).__name__
            raise TypeError(f"is_init should be a tensor of dtype torch.bool, got: {found}")
        wanted = tuple(input.shape[:2]) if is_batched else (input.size(1 - batch_dim),)
        if tuple(is_init.shape) != wanted:
            layout = "[T]" if not is_batched else "[B, T]" if self.batch_first else "[T, B]"
            raise RuntimeError(f"Expected is_init of size {layout} = {wanted}, got {list(is_init.shape)}")
        if not is_batched:
            return is_init.unsqueeze(1)
        return is_init.transpose(0, 1) if self.batch_first else is_init

    def _state_of(self, outputs: list[Tensor]) -> State:
        return (outputs[1], outputs[2]) if self.kind == "LSTM" else outputs[1]

    def extra_repr(self) -> str:
        shown = [super().extra_repr()]
        for name, default in _options.OPTIONS[self.kind].items():
            if (value := getattr(self, name)) != default:
                shown.append(f"{name}={getattr(value, '__name__', repr(value)) if callable(value) else repr(value)}")
        return ", ".join(shown)
