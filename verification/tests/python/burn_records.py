"""Burn's records as tensors: how they are made and read, and the weights of burn-nn's own unit tests."""

from __future__ import annotations

import torch
from safetensors.torch import save_file

from weft import formats


def gate(name, input_weight, input_bias, hidden_weight, hidden_bias):
    """A GateController's tensors in a record: weights [inputs, outputs]."""
    return {
        f"{name}.input_transform.weight": torch.tensor(input_weight),
        f"{name}.input_transform.bias": torch.tensor(input_bias),
        f"{name}.hidden_transform.weight": torch.tensor(hidden_weight),
        f"{name}.hidden_transform.bias": torch.tensor(hidden_bias),
    }


def scalar(name, weight, bias=0.0):
    return gate(name, [[weight]], [bias], [[weight]], [bias])


def read(tmp_path, tensors, suffix=".safetensors", **options):
    path = tmp_path / f"record{suffix}"
    if suffix == ".safetensors":
        # As in burn-store's default_metadata.
        metadata = {"format": "safetensors", "producer": "burn", "version": "0.22.0"}
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path, metadata)
    else:
        torch.save(tensors, path)
    return formats.read(path, options=options)


def steps(values):
    """[T, F] of one sequence -> [T, 1, F]"""
    return torch.tensor(values).unsqueeze(1)


def under(prefix, tensors):
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def renamed(tensors, name):
    return {f"{name}.{key.partition('.')[2]}": tensor for key, tensor in tensors.items()}


# gru.rs: test_gru_against_pytorch and test_bigru_against_pytorch
GRU_FORWARD = (
    gate(
        "update_gate",
        [[-0.2811, 0.5090, 0.5018], [0.3391, -0.4236, 0.1081]],
        [0.2932, -0.3519, -0.5715],
        [[-0.3471, 0.5214, 0.0961], [0.0545, -0.4904, -0.1875], [-0.5702, 0.4457, 0.3568]],
        [-0.0100, 0.4518, -0.4102],
    )
    | gate(
        "reset_gate",
        [[0.4414, -0.1353, -0.1265], [0.4792, 0.5304, 0.1165]],
        [-0.2524, 0.3333, 0.1033],
        [[-0.2695, -0.0677, -0.4557], [0.1472, -0.2345, -0.2662], [-0.2660, 0.3830, -0.1630]],
        [0.1663, 0.2391, 0.1826],
    )
    | gate(
        "new_gate",
        [[0.4266, 0.2784, 0.4451], [0.0782, -0.0815, 0.0853]],
        [-0.2231, -0.4428, 0.4737],
        [[0.0900, -0.1821, 0.2430], [0.4665, 0.1551, 0.5155], [0.0631, -0.1566, 0.3337]],
        [0.0364, -0.3941, 0.1780],
    )
)
GRU_REVERSE = (
    gate(
        "update_gate",
        [[-0.3444, 0.1924, -0.4765], [0.5193, 0.5556, -0.5727]],
        [0.1090, 0.1779, -0.5385],
        [[0.1221, 0.3925, 0.5287], [-0.1472, -0.4187, -0.1948], [0.3441, -0.3082, -0.2047]],
        [0.0016, -0.2148, -0.0400],
    )
    | gate(
        "reset_gate",
        [[-0.1988, -0.1203, -0.3422], [0.1769, 0.4788, -0.3443]],
        [-0.5053, -0.3676, 0.5771],
        [[-0.3936, 0.3504, -0.4486], [0.3063, -0.1370, -0.2914], [-0.2334, 0.3303, 0.1760]],
        [-0.5080, -0.2488, -0.3456],
    )
    | gate(
        "new_gate",
        [[-0.4517, 0.2339, 0.4797], [-0.3884, 0.2067, -0.2982]],
        [-0.3792, -0.1922, 0.0903],
        [[-0.5586, -0.0762, -0.3944], [-0.3306, -0.4191, -0.4898], [0.1442, 0.0135, -0.3179]],
        [-0.3912, -0.3963, -0.3368],
    )
)

RNN_FORWARD = gate(
    "gate",
    [[0.367, 0.091, 0.342], [0.322, 0.533, 0.059]],
    [-0.196, 0.354, 0.209],
    [[-0.320, 0.232, -0.165], [0.093, -0.572, -0.315], [-0.467, 0.325, 0.046]],
    [0.181, -0.190, -0.245],
)
RNN_REVERSE = gate(
    "gate",
    [[-0.055, 0.506, 0.247], [-0.369, 0.178, -0.258]],
    [0.540, -0.164, 0.033],
    [[0.159, 0.180, -0.037], [-0.443, 0.485, -0.488], [0.098, -0.085, -0.140]],
    [-0.510, 0.105, 0.114],
)

BILSTM = {
    "forward": renamed(RNN_FORWARD, "input_gate")
    | gate(
        "forget_gate",
        [[-0.342, -0.084, -0.420], [-0.432, 0.119, 0.191]],
        [0.315, -0.413, -0.041],
        [[0.453, 0.063, 0.561], [0.211, 0.149, 0.213], [-0.499, -0.158, 0.068]],
        [-0.431, -0.535, 0.125],
    )
    | gate(
        "cell_gate",
        [[-0.046, -0.382, 0.321], [-0.533, 0.558, 0.004]],
        [-0.358, 0.282, -0.078],
        [[-0.358, 0.109, 0.139], [-0.345, 0.091, -0.368], [-0.508, 0.221, -0.507]],
        [0.502, -0.509, -0.247],
    )
    | gate(
        "output_gate",
        [[-0.577, -0.359, 0.216], [-0.550, 0.268, 0.243]],
        [-0.227, -0.274, 0.039],
        [[-0.383, 0.449, 0.222], [-0.357, -0.093, 0.449], [-0.106, 0.236, 0.360]],
        [-0.361, -0.209, -0.454],
    ),
    "reverse": renamed(RNN_REVERSE, "input_gate")
    | gate(
        "forget_gate",
        [[-0.154, -0.432, -0.547], [-0.369, -0.310, -0.175]],
        [0.141, 0.004, 0.055],
        [[-0.005, -0.277, -0.515], [-0.011, -0.101, -0.365], [0.426, 0.379, 0.337]],
        [-0.382, 0.331, -0.176],
    )
    | gate(
        "cell_gate",
        [[-0.571, 0.228, -0.287], [-0.331, 0.110, 0.219]],
        [-0.206, -0.546, 0.462],
        [[0.449, -0.240, 0.071], [-0.045, 0.131, 0.124], [0.138, -0.201, 0.191]],
        [-0.030, 0.211, -0.352],
    )
    | gate(
        "output_gate",
        [[0.491, -0.442, 0.333], [0.313, -0.121, -0.070]],
        [-0.387, -0.250, 0.066],
        [[-0.030, 0.268, 0.299], [-0.019, -0.280, -0.314], [0.466, -0.365, -0.248]],
        [-0.398, -0.199, -0.566],
    ),
}
