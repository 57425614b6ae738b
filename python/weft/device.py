"""The lazy device: `torch.device("weft")`. ::

    model = model.to("weft")
    for x, y in loader:
        loss = criterion(model(x.to("weft")), y.to("weft"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        weft.sync()

Operations on tensors of the device are written down, not run. `weft.sync()`, and whatever asks for values (`.item()`,
`.cpu()`, printing), runs what was written down since the last time as one program. Results whose tensors are gone by
then are not computed. The same steps the next time find their program again.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from weft import _C
from weft._base import torch_private

_NAME = "weft"


def register() -> None:
    """Makes `torch.device("weft")` known to PyTorch; importing weft has done so unless PyTorch has an accelerator. Also
    makes it the machine's accelerator (`torch.accelerator`), which it otherwise becomes with the first tensor there.

    Raises:
        RuntimeError: another package has taken PyTorch's place for a device from outside.
    """
    _register()
    torch.empty(0, device=_NAME)


def _register() -> None:
    if is_registered():
        return
    if not has_place():
        taken = torch_private.get_privateuse1_backend_name()
        raise RuntimeError(
            f"weft.device: PyTorch has room for one device from outside (PrivateUse1), and {taken!r} is it"
        )
    from weft._capture.decompositions import decompose
    from weft._device import (
        accelerator,
        backward,
        collectives,
        copies,
        inductor,
        modules,
        places,
        sharing,
        torch_module,
    )

    in_place_of_another = accelerator.register()
    torch.utils.rename_privateuse1_backend(_NAME)
    torch_private.register_device_module(_NAME, torch_module)  # type: ignore[no-untyped-call]
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    for part in (backward, collectives, copies, inductor, modules, sharing):
        part.register()
    _C.device_register(decompose, places.find_place)
    sys.modules[__name__].__dict__["_registered"] = True
    if in_place_of_another:
        torch.empty(0, device=_NAME)


_registered = False


def is_registered() -> bool:
    """Whether there is a `torch.device("weft")`."""
    return _registered


def has_place() -> bool:
    """Whether no other package has taken PyTorch's place for a device from outside."""
    return torch_private.get_privateuse1_backend_name() == "privateuseone"


def register_at_import() -> None:
    """Registers the device if its place is free and PyTorch was built without an accelerator. WEFT_DEVICE=1 registers
    it in any case, WEFT_DEVICE=0 never."""
    wanted = os.environ.get("WEFT_DEVICE")
    built_for = torch.version.cuda or torch.version.hip or getattr(torch.version, "xpu", None)
    if has_place() and wanted != "0" and (wanted == "1" or not built_for):
        _register()


def sync(wait: bool = True) -> None:
    """Runs what this thread has recorded on the device, as one program.

    `wait`: taken for programs written for other lazy devices; results are there when it returns either way.

    Raises:
        RuntimeError: out of memory.
        Exception: the error of an operation, where it would have changed a tensor in place, such as a parameter, which
            keeps its value. Any other error comes when the result is read.
    """
    _C.device_sync()


def stats() -> dict[str, Any]:
    """The same counts as `weft.stats()["device"]`, since the process began."""
    return _C.device_stats() | {"ran_at_once": _C.device_ran_at_once()}


def set_autocast_list(name: str) -> None:
    """Has `torch.autocast("weft")` follow another of PyTorch's lists, in all threads: "cuda", the default; "cpu"; or
    "xla", the list of PyTorch/XLA. docs/autocast.md says how the lists differ. Must be called before the program's
    first step.

    Raises:
        ValueError: `name` is something else.
        RuntimeError: another package has taken PyTorch's place for a device from outside.
    """
    _register()
    _C.device_set_autocast_list(name)


def memory_stats() -> dict[str, int]:
    """Memory of the device's tensors: `bytes` that values of storages take now, `most_bytes` that they took at any time
    since `reset_peak_memory_stats()`, how many `storages` there are, with a value or without, and how many operations
    are `pending`. Values that only pending operations keep alive are not among them."""
    return _C.device_memory()


def reset_peak_memory_stats() -> None:
    """Makes `most_bytes` start from the bytes held now."""
    _C.device_forget_peak()
