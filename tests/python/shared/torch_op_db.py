"""PyTorch's list of its ops with samples (op_db).

Whoever asks for samples there is looked for on the stack, in case it is one of unittest's tests, which get the last
sample to report. Ours are none, and Python reads the source of each frame for it: half of the time of a test of an op,
nine tenths where many modules are loaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from torch.testing._internal import common_methods_invocations, common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.testing._internal.opinfo.core import OpInfo

common_utils.extract_test_fn = core.extract_test_fn = lambda: None

__all__ = ["_as_it_is", "name_of", "op_db"]


def name_of(op: OpInfo) -> str:
    return op.full_name.replace(".", "_") + op.variant_test_name


@pytest.fixture(autouse=True)
def _as_it_is(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ignores warnings, and leaves out op_db's seeding before each call of an op that draws, which a captured step
    would do only once."""
    monkeypatch.setattr(common_methods_invocations, "wrapper_set_seed", lambda op, *args, **kwargs: op(*args, **kwargs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
