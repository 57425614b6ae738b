"""Layers to parameters of Flax's linen, of a Sequential of RNNs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from weft.formats._arrays.flax import LINEN
from weft.formats._features import refuse
from weft.formats._files.tensors import write_tensors
from weft.formats._layers import SIGMOID, TANH, Activation, Direction, Layer

_SUPPORTED = (
    "reset_after", "gate_activation", "activation", "merge", "reverse", "bidirectional", "no_bias", "one_bias",
    "two_biases",
)  # fmt: skip
_CLASSES = {"GRU": "GRUCell", "LSTM": "OptimizedLSTMCell", "RNN": "SimpleCell"}
_MERGES = {"sum": "a + b", "mul": "a * b", "ave": "(a + b) / 2"}
#: Activations as Python code, in which {a} and {b} are the parameters.
_FUNCTIONS = {
    "affine": "lambda x: {a} * x + {b}",
    "elu": "lambda x: nn.elu(x, {a})",
    "exp": "jnp.exp",
    "gelu": "lambda x: nn.gelu(x, approximate=False)",
    "gelu_tanh": "nn.gelu",
    "hard_sigmoid": "lambda x: jnp.clip({a} * x + {b}, 0, 1)",
    "hard_silu": "nn.hard_silu",
    "hard_tanh": "nn.hard_tanh",
    "identity": "lambda x: x",
    "leaky_relu": "lambda x: nn.leaky_relu(x, {a})",
    "log_sigmoid": "nn.log_sigmoid",
    "mish": "jax.nn.mish",
    "relu": "nn.relu",
    "relu6": "nn.relu6",
    "scaled_tanh": "lambda x: {a} * jnp.tanh({b} * x)",
    "selu": "nn.selu",
    "sigmoid": "nn.sigmoid",
    "silu": "nn.silu",
    "softplus": "nn.softplus",
    "softsign": "nn.soft_sign",
    "tanh": "nn.tanh",
    "thresholded_relu": "lambda x: jnp.where(x > {a}, x, 0)",
}


def write(layers: list[Layer], path: Path) -> list[str]:
    """Writes the variables of linen modules: as flax.serialization's bytes to .msgpack, else flattened, with / between.

    Returns notes: the modules whose variables these are, and which biases were added.

    Raises:
        FormatError: Flax can't express the layers; nothing is written.
    """
    refuse("Flax", layers, _SUPPORTED, _problems(layers))
    tensors: dict[str, Tensor] = {}
    notes: list[str] = []
    stacks: list[list[Layer]] = []
    for layer in layers:
        if stacks and layer.continues:
            stacks[-1].append(layer)
        else:
            stacks.append([layer])
    for number, stack in enumerate(stacks):
        head = "params" if len(stacks) == 1 else f"params/stack_{number}"
        for i, layer in enumerate(stack):
            for word, direction in zip(("forward_rnn", "backward_rnn"), layer.directions, strict=False):
                group = f"{head}/layers_{i}/{word}/cell" if len(layer.directions) == 2 else f"{head}/layers_{i}/cell"
                tensors |= {f"{group}/{name}": part for name, part in _cell(layer, direction, notes)}
        text = f"nn.Sequential([{', '.join(map(_module, stack))}])"
        notes.append(f"{'these are' if len(stacks) == 1 else f'stack_{number} has'} the variables of {text}")
    write_tensors(tensors, path)
    return notes


def _problems(layers: list[Layer]) -> list[str]:
    problems = []
    for i, layer in enumerate(layers):
        if layer.continues and i > 0 and layers[i - 1].output_size != layer.input_size:
            given = layers[i - 1].output_size
            problems.append(f"an input of {layer.input_size} from an output of {given} ({layer.name})")
        if len(layer.directions) == 2 and [direction.reverse for direction in layer.directions] != [False, True]:
            problems.append(f"directions in another order than forward, backward ({layer.name})")
    return problems


def _cell(layer: Layer, direction: Direction, notes: list[str]) -> list[tuple[str, Tensor]]:
    """A linen cell's parameters by name. A gate with one bias gets the sum of both products' biases."""
    kind, units = layer.kind, layer.hidden_size
    of_x, of_h = LINEN[kind]
    xs, hs = (weight.detach().chunk(len(of_x)) for weight in (direction.weight_x, direction.weight_h))
    zeros = direction.weight_x.new_zeros(units * len(of_x))
    bias_x, bias_h = (zeros if bias is None else bias.detach() for bias in (direction.bias_x, direction.bias_h))
    parts = [(f"{name}/kernel", part.T) for name, part in zip((*of_x, *of_h), (*xs, *hs), strict=True)]
    both = direction.bias_x is not None and direction.bias_h is not None
    if kind == "GRU":
        # The new gate's products have a bias each: the reset gate is between them.
        apart = torch.cat([torch.zeros_like(bias_h[: 2 * units]), bias_h[2 * units :]])
        summed = (bias_x + (bias_h - apart)).chunk(3)
        parts += [(f"{name}/bias", part) for name, part in zip(of_x, summed, strict=True)]
        parts.append((f"{of_h[2]}/bias", bias_h[2 * units :]))
        both = both and bool((bias_h[: 2 * units] != 0).any())
    else:
        names = of_h if kind == "LSTM" else of_x
        summed = (bias_x + bias_h if both else bias_x if direction.bias_x is not None else bias_h).chunk(len(of_x))
        parts += [(f"{name}/bias", part) for name, part in zip(names, summed, strict=True)]
    note = f"layer {layer.name!r}: its biases of x and of h were added" + (" for r and z" if kind == "GRU" else "")
    if both and note not in notes:
        notes.append(note)
    return parts


def _module(layer: Layer) -> str:
    """The linen module, as Python code."""
    arguments = [str(layer.hidden_size)]
    if layer.kind != "RNN" and layer.gate_activation != SIGMOID:
        arguments.append(f"gate_fn={_function(layer.gate_activation)}")
    if layer.activation != TANH:
        arguments.append(f"activation_fn={_function(layer.activation)}")
    dtype = str(layer.directions[0].weight_x.dtype).removeprefix("torch.")
    if dtype != "float32":
        arguments.append(f"param_dtype=jnp.{dtype}")
    cell = f"nn.{_CLASSES[layer.kind]}({', '.join(arguments)})"
    if len(layer.directions) == 1:
        return f"nn.RNN({cell}, reverse=True, keep_order=True)" if layer.directions[0].reverse else f"nn.RNN({cell})"
    merge = f", merge_fn=lambda a, b: {_MERGES[layer.merge]}" if layer.merge in _MERGES else ""
    return f"nn.Bidirectional(nn.RNN({cell}), nn.RNN({cell}){merge})"


def _function(used: Activation) -> str:
    return _FUNCTIONS[used.name].format(a=repr(used.alpha), b=repr(used.beta))
