"""oneDNN's recurrent primitives, called directly: no framework, weights laid out once ahead.

PyTorch's LSTM and OpenVINO run the same primitives. The library is what `pip install onednn-cpu-gomp` puts beside
Python (3.2, the last release with OpenMP there); its C interface is in oneDNN's documentation under "C API".
"""

from __future__ import annotations

import ctypes
import functools
import sys
from ctypes import c_int, c_int64, c_uint, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cases import Case, Data
from peers import Prepared, Result, SkipCase
from peers.inference import forward_only

# Values of the C interface's enumerations.
CPU, DEFAULT_STREAM, FORWARD_INFERENCE, LEFT_TO_RIGHT = 1, 1, 96, 1
TYPES = {torch.float32: 3, torch.bfloat16: 2}
ANY, TNC, LDNC, LDGO, LDGOI = 1, 4, 5, 5, 31
QUERY_WEIGHTS = 131
SRC_LAYER, SRC_ITER, SRC_ITER_C, DST_LAYER, DST_ITER, DST_ITER_C = 1, 2, 3, 17, 18, 19
WEIGHTS_LAYER, WEIGHTS_ITER, BIAS, FROM, TO = 33, 34, 41, 1, 17


class Argument(ctypes.Structure):
    _fields_ = [("arg", c_int), ("memory", c_void_p)]


def listed(arguments: dict[int, c_void_p]) -> ctypes.Array[Argument]:
    return (Argument * len(arguments))(*(Argument(arg, memory) for arg, memory in arguments.items()))


class Library:
    """The C functions, with errors raised as exceptions, and one engine and one stream."""

    def __init__(self) -> None:
        path = Path(sys.prefix) / "lib" / "libdnnl.so.3"
        try:
            self._c = ctypes.CDLL(str(path))
            self._openmp = ctypes.CDLL("libgomp.so.1")
        except OSError as error:
            raise ImportError(f"{error}; `pip install onednn-cpu-gomp` installs oneDNN") from error
        self._c.dnnl_primitive_desc_query_md.restype = c_void_p
        self.engine = self.make("engine_create", c_int(CPU), ctypes.c_size_t(0))
        self.stream = self.make("stream_create", self.engine, c_uint(DEFAULT_STREAM))

    def use_threads(self, threads: int) -> None:
        self._openmp.omp_set_num_threads(c_int(threads))

    def call(self, function: str, *args: Any) -> None:
        status = getattr(self._c, f"dnnl_{function}")(*args)
        if status != 0:
            raise RuntimeError(f"oneDNN: dnnl_{function} returned {status}")

    def make(self, function: str, *args: Any) -> c_void_p:
        """The object that a function creates; it lives as long as the process."""
        made = c_void_p()
        self.call(function, ctypes.byref(made), *args)
        return made

    def description(self, sizes: tuple[int, ...], dtype: torch.dtype, tag: int) -> c_void_p:
        dims = (c_int64 * len(sizes))(*sizes)
        return self.make("memory_desc_create_with_tag", c_int(len(sizes)), dims, c_int(TYPES[dtype]), c_int(tag))

    def memory(self, description: c_void_p, pointer: int) -> c_void_p:
        return self.make("memory_create", description, self.engine, c_void_p(pointer))

    def weights_wanted(self, primitive: c_void_p, index: int) -> c_void_p:
        """The layout that the primitive chose for its weights."""
        return c_void_p(self._c.dnnl_primitive_desc_query_md(primitive, c_int(QUERY_WEIGHTS), c_int(index)))

    def size_of(self, description: c_void_p) -> int:
        self._c.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        return int(self._c.dnnl_memory_desc_get_size(description))

    def execute(self, primitive: c_void_p, listed: ctypes.Array[Argument]) -> None:
        self.call("primitive_execute", primitive, self.stream, c_int(len(listed)), listed)
        self.call("stream_wait", self.stream)


@functools.cache
def library() -> Library:
    return Library()


def gates_of(case: Case, weights: Tensor) -> list[Tensor]:
    """A weight's or bias's parts in oneDNN's order, which for a GRU begins with the update gate."""
    parts = list(weights.chunk(4 if case.cell == "lstm" else 3))
    return parts if case.cell == "lstm" else [parts[1], parts[0], parts[2]]


def bias_of(case: Case, of_inputs: Tensor, of_state: Tensor) -> Tensor:
    """f32: the sum of both biases, except for the GRU's candidate, whose second bias the reset gate scales."""
    pairs = zip(gates_of(case, of_inputs.float()), gates_of(case, of_state.float()), strict=True)
    if case.cell == "lstm":
        return torch.cat([x + h for x, h in pairs])
    update, reset, (new_x, new_h) = pairs
    return torch.cat([update[0] + update[1], reset[0] + reset[1], new_x, new_h])


class Layer:
    """One layer of one case, ready to run: in one call, or in a call for each step if the case is streaming."""

    def __init__(self, case: Case, data: Data) -> None:
        self.case, self.library = case, library()
        self.kept: list[Tensor] = []  # memory that oneDNN has addresses of
        lib, dtype = self.library, data.x.dtype
        steps = 1 if case.streaming else case.steps
        self.x_desc = lib.description((steps, case.batch, case.inputs), dtype, TNC)
        self.y_desc = lib.description((steps, case.batch, case.hidden), dtype, TNC)
        self.state_desc = lib.description((1, 1, case.batch, case.hidden), dtype, LDNC)
        self.y = torch.empty(case.steps, case.batch, case.hidden, dtype=dtype)
        constants = self._make(data)
        self.calls, states = [], [self._keep(state) for state in data.states]
        spare = [[torch.empty_like(state) for state in states] for _ in range(2)]
        for x, y in zip(self._keep(data.x).split(steps), self.y.split(steps), strict=True):
            states, before = spare[len(self.calls) % 2], states
            self.calls.append(listed(constants | self._arguments(x, y, before, states)))
        self.last = states
        self.kept += [each for pair in spare for each in pair]

    def _make(self, data: Data) -> dict[int, c_void_p]:
        """Creates the primitive; the weights and the bias, as arguments of it."""
        case, lib, dtype = self.case, self.library, data.x.dtype
        gates = 4 if case.cell == "lstm" else 3
        w_ih, w_hh, b_ih, b_hh = data.weights
        bias = self._keep(bias_of(case, b_ih, b_hh))
        bias_desc = lib.description((1, 1, bias.numel() // case.hidden, case.hidden), torch.float32, LDGO)
        sizes = [(1, 1, inner, gates, case.hidden) for inner in (case.inputs, case.hidden)]
        any_weights = [lib.description(each, dtype, ANY) for each in sizes]
        states, peepholes = [self.state_desc] * len(data.states), [None, None] if case.cell == "lstm" else []
        descriptions = [self.x_desc, *states, *any_weights, *peepholes, bias_desc, self.y_desc, *states]
        name = "lstm" if case.cell == "lstm" else "lbr_gru"
        wanted = lib.make(
            f"{name}_forward_primitive_desc_create",
            lib.engine,
            c_int(FORWARD_INFERENCE),
            c_int(LEFT_TO_RIGHT),
            *descriptions,
            c_uint(0),
            None,
        )
        self.primitive = lib.make("primitive_create", wanted)
        arguments = {BIAS: lib.memory(bias_desc, bias.data_ptr())}
        for index, (arg, value) in enumerate(((WEIGHTS_LAYER, w_ih), (WEIGHTS_ITER, w_hh))):
            plain = self._keep(torch.cat(gates_of(case, value)))
            layout = lib.weights_wanted(wanted, index)
            arguments[arg] = self._laid_out(lib.description(sizes[index], dtype, LDGOI), plain, layout)
        return arguments

    def _arguments(self, x: Tensor, y: Tensor, before: list[Tensor], after: list[Tensor]) -> dict[int, c_void_p]:
        """The arguments that change from call to call."""
        lib = self.library
        found = {SRC_LAYER: lib.memory(self.x_desc, x.data_ptr()), DST_LAYER: lib.memory(self.y_desc, y.data_ptr())}
        for args, states in (((SRC_ITER, SRC_ITER_C), before), ((DST_ITER, DST_ITER_C), after)):
            for arg, state in zip(args, states, strict=False):
                found[arg] = lib.memory(self.state_desc, state.data_ptr())
        return found

    def _keep(self, value: Tensor) -> Tensor:
        self.kept.append(value.detach().contiguous())
        return self.kept[-1]

    def _laid_out(self, description: c_void_p, value: Tensor, layout: c_void_p) -> c_void_p:
        """The weights in the primitive's own layout, copied once."""
        lib = self.library
        memory = lib.memory(layout, self._keep(torch.empty(lib.size_of(layout), dtype=torch.uint8)).data_ptr())
        how = lib.make("reorder_primitive_desc_create", description, lib.engine, layout, lib.engine, None)
        plain = lib.memory(description, value.data_ptr())
        lib.execute(lib.make("primitive_create", how), listed({FROM: plain, TO: memory}))
        return memory

    def run(self) -> None:
        for each in self.calls:
            self.library.execute(self.primitive, each)

    def result(self) -> Result:
        self.run()
        names = ("y", "h_n", "c_n")
        values = (self.y, *self.last)
        return {name: value.float().numpy().copy() for name, value in zip(names, values, strict=False)}


class OneDnn:
    name = "onednn"

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def prepare(self, case: Case, data: Data) -> Prepared:
        forward_only(case)
        if case.cell not in ("gru", "lstm") or data.x.dtype not in TYPES:
            raise SkipCase("has primitives for f32 and bf16 GRUs and LSTMs here")
        if not case.is_one_layer:
            raise SkipCase("runs one layer and direction here")
        library().use_threads(self.threads)
        layer = Layer(case, data)
        return Prepared(layer.run, layer.result)
