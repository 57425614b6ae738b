"""Makes the functions of recurrent layers and cells real attributes of `torch._VF`.

PyTorch's modules call `_VF.gru` and similar functions. `torch._VF` has no such attributes: each time Python looks for
one, it makes an AttributeError and calls the module's `__getattr__`, which finds the function in
`torch._C._VariableFunctions`. That takes a third of the time of calling one step.
"""

from __future__ import annotations

from weft._base.torch_private import VF, VariableFunctions
from weft._patches.rnn_decompositions import OVERRIDDEN

NAMES = (*OVERRIDDEN, *(f"{name}_cell" for name in OVERRIDDEN))


def enable() -> None:
    """Sets the objects that the look-up would find; an attribute that somebody else has set stays."""
    attributes = VF.__dict__
    for name in NAMES:
        attributes.setdefault(name, getattr(VariableFunctions, name))


def disable() -> None:
    attributes = VF.__dict__
    for name in NAMES:
        if attributes.get(name) is getattr(VariableFunctions, name):
            del attributes[name]
