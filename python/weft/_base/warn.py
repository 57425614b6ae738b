"""Warnings about code that doesn't run as Weft's machine code, and about variables that nobody reads."""

from __future__ import annotations

import os
import types
import warnings

from weft import _C
from weft._base import users_code
from weft._base.words import did_you_mean


class FallbackWarning(UserWarning):
    """Something runs on PyTorch's own kernels: correctly, but without Weft's speed. The message says why.

    It shows once for each reason, at the line of your code that caused it. `warnings.simplefilter("error",
    weft.FallbackWarning)` makes it an error there; `WEFT_STRICT=1` makes every fallback one.
    """


#: Shown for a file's name where no line of the user's is known.
_ELSEWHERE = "<no Python code>"
#: Environment variables read by Python code, and by the build, tests and scripts, which may start a process that
#: imports Weft.
_OTHERS = (
    "WEFT_RUN", "WEFT_RUN_BACKEND", "WEFT_RUN_STATS", "WEFT_SKIP_PACKAGES", "WEFT_SWEEP", "WEFT_FUZZ_FILES",
    "WEFT_SITE", "WEFT_STATIC_LLVM", "WEFT_OLDER_SYSTEMS", "WEFT_SANITIZE", "WEFT_DEVICE", "WEFT_TORCH",
    "WEFT_RELEASES",
)  # fmt: skip
_OTHERS_BEGIN = ("WEFT_BUILD_", "WEFT_OP", "WEFT_RANDOM_", "WEFT_TEST_")


def of_fallback(text: str) -> None:
    """Warns at the user's line."""
    _warn(text, FallbackWarning, users_code.calling())


def of_fallback_at(text: str, file: str, line: int) -> None:
    """Warns at a line of the user's that isn't at work now."""
    warnings.warn_explicit(text, FallbackWarning, file or _ELSEWHERE, line)


def of_fallback_elsewhere(text: str) -> None:
    """Warns where no line of the user's is known."""
    _warn(text, FallbackWarning, None)


def of_unknown_variables() -> None:
    """Warns of environment variables that look like Weft's and are none."""
    known = {name for name in (*_OTHERS, *_C.setting_names()) if name.startswith("WEFT")}
    for name in os.environ:
        if not name.startswith("WEFT_") or name in known or name.startswith(_OTHERS_BEGIN):
            continue
        text = f"weft: nothing reads the environment variable {name}{did_you_mean(name, known)}"
        _warn(text, UserWarning, users_code.calling(), "<environment>")


def _warn(text: str, category: type[Warning], frame: types.FrameType | None, elsewhere: str = _ELSEWHERE) -> None:
    if frame is None:
        warnings.warn_explicit(text, category, elsewhere, 0)
        return
    names = frame.f_globals
    warnings.warn_explicit(
        text,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=str(names.get("__name__", "__main__")),
        registry=names.setdefault("__warningregistry__", {}),
    )


_C.set_warner(of_fallback, of_fallback_elsewhere)
