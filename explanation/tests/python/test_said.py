"""Warnings of PyTorch's compiler are in the report; other warnings are where they were raised."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path

import pytest
import torch
from explain_cases import in_process
from torch._dynamo.variables.tensor import TensorVariable

import weft
from weft.explanation._watching.said import Said

FAST = ("--seconds", "0.1", "--rounds", "3")

#: Dynamo warns of `.item()`. It compiles again for each n, and warns at the end that it has compiled too often.
TALKATIVE = """
import logging, warnings
import torch

log = logging.getLogger("the user's")
log.addHandler(logging.StreamHandler())

@torch.compile(backend="eager", dynamic=False)
def step(x, n):
    log.warning("logged by the user")
    return x * x.mean().item() + n

warnings.warn("warned of by the user")
for n in range(10):
    step(torch.ones(3), n)
"""


@pytest.fixture(autouse=True)
def warn_again() -> None:
    """Dynamo warns of `.item()` once in a process."""
    TensorVariable._warn_capture_scalar_outputs.cache_clear()


def test_the_compilers_warnings_are_in_the_report_and_the_users_where_they_were(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    program = tmp_path / "program.py"
    program.write_text(TALKATIVE)
    status, out, err = in_process(capfd, *FAST, "--format", "json", program)
    assert status == 0, err
    found = {each["text"].splitlines()[0]: each for each in json.loads(out)["warnings"]}
    limit, number = sorted(found)[::-1]
    assert limit == "torch._dynamo hit config.recompile_limit (8)"
    assert number == "Graph break from `Tensor.item()`, consider setting:"
    assert found[limit]["source"] == "torch._dynamo.convert_frame" and found[limit]["times"] == 1
    assert "x.mean().item()" in found[number]["text"]
    assert err.count("logged by the user") == 10  # and not once for each step that was measured
    assert [str(each.message) for each in recwarn] == ["warned of by the user"]
    assert "torch._dynamo" not in err


def test_a_program_that_fails_has_them_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(TALKATIVE + "raise ValueError('no way')\n")
    status, out, err = in_process(capfd, *FAST, program)
    assert (status, out) == (3, "")
    assert err.count("torch._dynamo.convert_frame: torch._dynamo hit config.recompile_limit (8)\n") == 1
    assert err.endswith("weft explain: the program failed: ValueError: no way\n")


def test_a_function_is_listened_to_while_it_is_compiled(capfd: pytest.CaptureFixture[str]) -> None:
    torch.compiler.reset()

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * x.mean().item()

    results = weft.explain(step, torch.ones(3), backend="eager", seconds=0.1, rounds=3, hlo=False).results
    (warned,) = results.warnings
    assert warned.source == "torch._dynamo.variables.tensor" and warned.times == 1
    assert warned.text.startswith("Graph break from `Tensor.item()`, consider setting:")
    assert capfd.readouterr() == ("", "")


def warner(module: str) -> object:
    """A function of that module that warns in the name of its caller."""
    names: dict[str, object] = {"__name__": module}
    exec("import warnings\ndef warn(text): warnings.warn(text, stacklevel=2)", names)
    return names["warn"]


@pytest.mark.parametrize(
    ("module", "kept"),
    [("torch._dynamo.utils", True), ("torch._inductor", True), ("torch._inductors", False), ("torch.nn", False)],
)
def test_a_warning_belongs_to_who_gives_it(module: str, kept: bool) -> None:
    warn = warner(module)
    assert callable(warn)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        before = warnings.showwarning
        with Said() as said:
            warn("so 0x7f00")
            warn("so 0x7f08")
            with said.only(keeps=False):
                warn("nothing")
        assert warnings.showwarning is before
    assert [(each.text, each.times) for each in said.warned] == ([("so 0x7f00", 2)] if kept else [])
    assert [str(each.message) for each in shown] == ([] if kept else ["so 0x7f00", "so 0x7f08"])


def test_other_handlers_and_lower_levels_get_what_they_got(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []

    class Mine(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    mine = Mine()
    log = logging.getLogger("torch._dynamo.of_a_test")
    console = logging.StreamHandler()
    log.addHandler(mine)
    log.addHandler(console)
    log.propagate = False
    log.setLevel(logging.INFO)
    try:
        with Said() as said:
            log.info("asked for")
            log.warning("loud %d", 1)
    finally:
        log.handlers.clear()
    assert seen == ["asked for", "loud 1"]
    assert [(each.source, each.text) for each in said.warned] == [("torch._dynamo.of_a_test", "loud 1")]
    assert capfd.readouterr().err == "asked for\n"
