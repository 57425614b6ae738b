"""`weft verify` and `weft convert` as typed at a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from shared_fixtures import heed_interrupts
from torch import nn

from weft._command_line import main
from weft.verification import _commands


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(path: str, module: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    torch.save(module.state_dict(), path)
    return module


def test_agree_is_0_differ_is_1_unreadable_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    save("a.pt", nn.GRU(3, 4))
    save("b.pt", nn.GRU(3, 4))
    save("c.pt", nn.GRU(3, 4), seed=1)
    assert main(["verify", "a.pt", "b.pt"]) == 0
    assert capsys.readouterr().out.startswith("agree")
    assert main(["verify", "a.pt", "c.pt"]) == 1
    assert capsys.readouterr().out.startswith("differ: first at step 0, layer 0")
    save("two.pt", nn.GRU(3, 4, 2))
    assert main(["verify", "a.pt", "two.pt"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("differ in structure: the reference has 1 layer, the candidate 2 layers")
    assert "the reference's layer 0 (GRU 3 -> 4) fits the candidate's layer 0\n" in out
    assert "the candidate's layer 1 (l1: GRU 4 -> 4) fits nothing of the" in out
    for words in (["a.pt", "none.pt"], ["a.pt"], ["a.pt", "b.pt", "--steps", "many"], ["a.pt", "b.pt", "--steps", "0"]):
        assert main(["verify", *words]) == 2, words
        out, err = capsys.readouterr()
        assert not out and err
    Path("text.pt").write_text("not a model")
    assert main(["verify", "a.pt", "text.pt"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_reports_formats(capsys: pytest.CaptureFixture[str]) -> None:
    save("a.pt", nn.GRU(3, 4))
    save("c.pt", nn.GRU(3, 4), seed=1)
    assert main(["verify", "a.pt", "c.pt", "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["agrees"] is False
    assert main(["verify", "a.pt", "c.pt", "--output", "report.html"]) == 1
    assert capsys.readouterr().out.startswith("differ: first at step 0, layer 0, forward")
    assert Path("report.html").read_text().lower().startswith("<!doctype html>")
    assert main(["verify", "a.pt", "a.pt", "--output", "report.html", "--format", "json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("agree") and out.count("\n") == 1 and json.loads(Path("report.html").read_text())["agrees"]
    assert main(["verify", "a.pt", "c.pt", "--output", "no/such/folder.txt"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["a.pt", "c.pt", "report.html"]


def test_input_random_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    module = save("a.pt", nn.GRU(3, 4))
    x = torch.randn(6, 2, 3)
    np.savez("x.npz", x=x.numpy(), h0=np.ones((1, 2, 4)))
    assert main(["verify", "a.pt", "a.pt", "--input", "x.npz"]) == 0
    assert "x.npz: 6 steps, batch 2, 3 inputs" in capsys.readouterr().out
    assert main(["verify", "a.pt", "a.pt", "--random", "7", "--steps", "3", "--batch", "5"]) == 0
    assert "random, seed 7: 3 steps, batch 5, 3 inputs" in capsys.readouterr().out
    assert main(["verify", "a.pt", "a.pt", "--candidate-option", "reset_after=false"]) == 1
    assert "reset_before" in capsys.readouterr().out
    assert main(["verify", "a.pt", "a.pt", "--candidate-option", "reset_after"]) == 2
    assert "should be NAME=VALUE" in capsys.readouterr().err
    with torch.no_grad():
        np.savez("trace.npz", x=x.numpy(), y=module(x)[0].numpy())
    assert main(["verify", "a.pt", "trace.npz"]) == 0
    assert main(["verify", "trace.npz", "a.pt"]) == 0
    assert main(["verify", "a.pt", "trace.npz", "--input", "x.npz"]) == 2


def test_convert_writes_or_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    save("a.pt", nn.LSTM(3, 4, 2, bidirectional=True))
    assert main(["convert", "a.pt", "a.safetensors"]) == 0
    assert capsys.readouterr().out.startswith("a.pt (pytorch) -> a.safetensors: 2 layers")
    assert Path("a.safetensors").stat().st_mode == Path("a.pt").stat().st_mode  # the mode of any new file
    assert main(["convert", "a.pt", "a.npz", "--steps", "5"]) == 0
    assert "a trace of the last of 2 layers" in capsys.readouterr().out
    assert main(["verify", "a.safetensors", "a.npz"]) == 0
    for words in (["a.npz", "b.onnx"], ["a.pt", "a.unknown"], ["a.pt", "none/b.pt"], ["nothing.pt", "b.pt"]):
        capsys.readouterr()
        assert main(["convert", *words]) == 2, words
        assert capsys.readouterr().err.count("\n") == 1
    assert not Path("b.onnx").exists()


def test_help_names_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("verify", "convert"):
        assert main([command, "--help"]) == 0
        assert f"usage: weft {command}" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "weft verify" in capsys.readouterr().out


def test_a_reader_that_has_enough_is_no_error() -> None:
    save("a.pt", nn.GRU(3, 4))
    done = subprocess.run(
        f"{sys.executable} -m weft verify a.pt a.pt | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.startswith("agree") and not done.stderr, done.stderr


def test_an_interrupt_ends_a_long_search() -> None:
    save("a.pt", nn.LSTM(300, 300))
    save("c.pt", nn.LSTM(300, 300), seed=1)
    # The signal comes from inside, so that it arrives during the search and not while Python starts.
    code = """if True:
        import os, signal, sys, threading
        from weft._command_line import main
        import weft.verification
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        sys.exit(main(["verify", "a.pt", "c.pt"]))"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, preexec_fn=heed_interrupts)
    assert done.returncode == 130 and done.stderr == "weft verify: interrupted\n", done.stderr


def test_a_device_is_written_to() -> None:
    save("a.pt", nn.GRU(3, 4))
    assert _commands.main("verify", ["a.pt", "a.pt", "--output", os.devnull]) == 0
    assert Path(os.devnull).is_char_device()
