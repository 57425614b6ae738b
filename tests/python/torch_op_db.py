"""PyTorch's list of its ops with samples (op_db).

Whoever asks for samples there is looked for on the stack, in case it is one of unittest's tests, which get the last
sample to report. Ours are none, and Python reads the source of each frame for it: half of the time of a test of an op,
nine tenths where many modules are loaded.
"""

from __future__ import annotations

from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

common_utils.extract_test_fn = core.extract_test_fn = lambda: None

__all__ = ["op_db"]
