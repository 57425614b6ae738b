"""examples/char_lm.py: its files, stops and restarts, and messages about bad options."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from shared_fixtures import heed_interrupts
from torch import nn

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "char_lm.py"
sys.path.insert(0, str(SCRIPT.parent))

import char_lm as script  # noqa: E402
from language_model import plot  # noqa: E402
from language_model.checkpoint import write_atomically  # noqa: E402
from language_model.text import Streams, Text  # noqa: E402

SMALL = [
    "--width", "12", "--batch", "4", "--length", "16", "--validate-every", "1000", "--sample", "20", "--threads", "1",
]  # fmt: skip


@pytest.fixture(scope="module")
def char_lm():
    """The program on a part of its text."""
    load_text = script.load_text
    text = load_text()
    script.load_text = lambda: Text(text.characters, text.train[:3000], text.validation[:200])
    yield script
    script.load_text = load_text


@pytest.fixture(autouse=True)
def fresh():
    threads = torch.get_num_threads()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def run(char_lm, tmp_path):
    def call(*options, out=tmp_path / "out", small=True):
        status = char_lm.main([*(SMALL if small else []), "--out", str(out), *map(str, options)])
        assert status == 0
        checkpoint = torch.load(Path(out) / "char_lm.pt", weights_only=True)
        return checkpoint, json.loads((Path(out) / "char_lm.json").read_text())

    return call


def refuse(char_lm, capsys, *options):
    """The one line with which the program refuses its options."""
    assert char_lm.main(list(map(str, options))) == 2
    error = capsys.readouterr().err
    assert error.startswith("char_lm: error: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_it_trains_in_one_graph_and_equals_eager(run, cell, capsys, tmp_path):
    checkpoint, summary = run("--cell", cell, "--layers", 2, "--steps", 40)
    assert summary["steps"] == summary["eager_steps"] == 40 and checkpoint["step"] == 40
    assert summary["graphs"] == 1 and summary["graph_breaks"] == 0 and summary["compile_seconds"] > 0
    assert summary["largest_loss_difference"] < 1e-3
    losses = checkpoint["losses"]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert (tmp_path / "out" / "char_lm.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "loads it with strict=True" in said and "times as fast as eager" in said and "--- a sample ---" in said

    module = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}[cell](12, 12, 2)
    weights = {k.removeprefix("rnn."): v for k, v in checkpoint["model"].items() if k.startswith("rnn.")}
    module.load_state_dict(weights, strict=True)


@pytest.mark.parametrize("backend", ["weft", "eager"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(run, tmp_path, cell, backend):
    options = ["--cell", cell, "--backend", backend, "--compare-seconds", 0]
    whole, _ = run(*options, "--steps", 60, out=tmp_path / "whole")
    run(*options, "--steps", 23, out=tmp_path / "part")
    rest, summary = run(
        *options, "--steps", 60, "--resume", tmp_path / "part" / "char_lm.pt", out=tmp_path / "part", small=False
    )
    assert summary["steps"] == 37
    assert rest["losses"] == whole["losses"]  # to the last bit
    for name, weight in whole["model"].items():
        assert torch.equal(weight, rest["model"][name])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_checkpoint(tmp_path, number):
    command = [sys.executable, str(SCRIPT), *SMALL, "--backend", "eager", "--seconds", "60", "--out", str(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    assert "parameters" in process.stdout.readline()
    process.stdout.readline()
    assert "step" in process.stdout.readline()  # the first steps are done
    process.send_signal(number)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0 and not error, error
    assert f"ended by {number.name}; go on with --resume {tmp_path / 'char_lm.pt'}" in out
    checkpoint = torch.load(tmp_path / "char_lm.pt", weights_only=True)
    assert checkpoint["step"] == len(checkpoint["losses"]) > 0
    assert sorted(os.listdir(tmp_path)) == ["char_lm.json", "char_lm.png", "char_lm.pt"]  # nothing half-written


def test_files_have_the_permissions_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", lambda file: file.write_text("new"))
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_the_plots_title_is_the_result():
    summary = {"backend": "weft", "step": 300, "validation_loss": 2 * math.log(2)}
    assert plot.title(summary, "gru") == "GRU: 2.00 bits a character after 300 steps"
    told = plot.title(summary | {"ratio": 3.14}, "lstm")
    assert told == "LSTM: 2.00 bits a character after 300 steps, 3.1 times as fast on weft as in eager PyTorch"


def test_the_plots_curves_are_medians():
    steps, values = plot.medians([9.0, 9.0, 1.0, 50.0, 3.0, 4.0, 6.0], 2, 3)  # of steps 3 to 5, and of 6 and 7
    assert steps == [4.0, 6.5] and values == [3.0, 5.0]


def test_a_failed_write_leaves_the_checkpoint_that_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(file):
        file.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_running_twice_writes_the_same(run):
    first, _ = run("--steps", 5, "--compare-seconds", 0)
    second, _ = run("--steps", 5, "--compare-seconds", 0)
    assert first["losses"] == second["losses"]


def test_bad_options_are_refused_in_one_line(char_lm, capsys, tmp_path):
    out = ["--out", tmp_path]
    assert "invalid choice: 'tree'" in refuse(char_lm, capsys, "--cell", "tree")
    assert "'0' is not a positive whole number" in refuse(char_lm, capsys, "--layers", 0)
    assert "'nan' is not a positive number" in refuse(char_lm, capsys, "--seconds", "nan")
    assert "unrecognized arguments: --depth" in refuse(char_lm, capsys, "--depth", 3)
    assert "streams of 128 characters need 1280001" in refuse(char_lm, capsys, *out, "--batch", 10000)
    assert "cannot read the checkpoint" in refuse(char_lm, capsys, *out, "--resume", tmp_path / "none")
    (tmp_path / "file").write_text("no checkpoint")
    assert "is not a checkpoint" in refuse(char_lm, capsys, *out, "--resume", tmp_path / "file")
    assert "cannot write to" in refuse(char_lm, capsys, "--out", tmp_path / "file" / "out")


def test_resuming_refuses_what_contradicts_the_checkpoint(run, char_lm, capsys, tmp_path):
    run("--steps", 2, "--backend", "eager")
    capsys.readouterr()
    resume = ["--out", tmp_path, "--resume", tmp_path / "out" / "char_lm.pt", "--backend", "eager"]
    assert "--width 13 contradicts the checkpoint, which has 12" in refuse(char_lm, capsys, *resume, "--width", 13)
    assert "the checkpoint is at step 2 already" in refuse(char_lm, capsys, *resume, "--steps", 2)


def test_streams_read_the_text_in_order():
    data = Streams(torch.arange(101), batch=4, length=6)
    assert data.windows == 4  # 25 characters a stream
    x, y, restart = data.window(0)
    assert restart and x[:, 1].tolist() == list(range(25, 31)) and torch.equal(y, x + 1)
    x, _, restart = data.window(1)
    assert not restart and x[0].tolist() == [6, 31, 56, 81]
    assert data.window(4)[2]
