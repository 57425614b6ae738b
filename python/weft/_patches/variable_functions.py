"""The functions of recurrent layers and cells as attributes of `torch._VF` of their own.

PyTorch's modules call `_VF.gru` and its kin. `torch._VF` has no such attributes: each time Python looks for one, makes
an AttributeError, and asks the module's `__getattr__`, which finds it in `torch._C._VariableFunctions`. That takes as
long as a third of the call of one step.
"""

from __future__ import annotations

from weft._base.torch_private import VF, VariableFunctions
from weft._patches.rnn_decompositions import OVERRIDDEN

NAMES = (*OVERRIDDEN, *(f"{name}_cell" for name in OVERRIDDEN))


def enable() -> None:
    """The same objects that the look-up finds; an attribute that somebody else has put there stays."""
    attributes = VF.__dict__
    for name in NAMES:
        attributes.setdefault(name, getattr(VariableFunctions, name))


def disable() -> None:
    attributes = VF.__dict__
    for name in NAMES:
        if attributes.get(name) is getattr(VariableFunctions, name):
            del attributes[name]
