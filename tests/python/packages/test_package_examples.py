"""The programs of examples/packages, in short versions: trained for a moment, packaged, built and run."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import weft

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from packages.amp import run as amp
from packages.denoiser import run as denoiser
from packages.policy import run as policy
from packages.rust import run as rust
from packages.spotter import run as spotter

from packages import toolchain


def needs(*programs: str) -> None:
    missing = [each for each in programs if shutil.which(each) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


@pytest.fixture(scope="module")
def amplifier(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    needs("cc", "c++")
    output = tmp_path_factory.mktemp("amp")
    return output, amp.run(output, most=200, hidden=16)


def test_the_amplifier(amplifier: tuple[Path, dict[str, float]]) -> None:
    """Learned in part, and the same in C++; run() itself compares the plug-in's blocks, and its bits with these."""
    output, figures = amplifier
    assert figures["difference"] <= amp.BOUND
    assert figures["trained_error"] < 0.3
    assert figures["package_error"] == pytest.approx(figures["trained_error"], rel=1e-3)
    assert figures["speed"] > 0
    if Path("/usr/include/lv2/core/lv2.h").exists():
        assert (output / "amp.lv2" / "amp.so").exists()


def test_the_player_of_integers(amplifier: tuple[Path, dict[str, float]]) -> None:
    """16-bit files give 16-bit files, whose samples are the rounded ones of floats; a sound of no samples is one."""
    output, _ = amplifier
    x = (torch.sin(torch.arange(3001) / 9) * 0.4 * 32768).round() / 32768
    found = {}
    for is_float in (True, False):
        (output / "in.wav").write_bytes(amp.wav(x, is_float))
        subprocess.run([output / "player", output / "in.wav", output / "out.wav"], check=True, capture_output=True)
        file = (output / "out.wav").read_bytes()
        assert file[:44] == amp.wav(x, is_float)[:44]
        found[is_float] = amp.samples_of(file)
    rounded = (found[True] * 32768).round().clamp(-32768, 32767) / 32768
    assert (found[False] - rounded).abs().max() <= 1 / 32768 and not torch.equal(found[False], x)
    for count in (0, 1):
        (output / "in.wav").write_bytes(amp.wav(x[:count]))
        subprocess.run([output / "player", output / "in.wav", output / "out.wav"], check=True, capture_output=True)
        assert torch.equal(amp.samples_of((output / "out.wav").read_bytes()), found[True][:count])


def test_the_player_says_what_is_wrong_with_a_file(amplifier: tuple[Path, dict[str, float]]) -> None:
    output, _ = amplifier
    x = torch.zeros(100)
    good = amp.wav(x)
    cases = {
        "is no WAV file": b"RIFF",
        "it has 2 channels; this program takes one": amp.wav(x, channels=2),
        "it has 44100 samples a second; the amplifier was learned at 48000": amp.wav(x, rate=44100),
        "integers (kind 1) of 16 bits and floats (kind 3) of 32": good[:34] + b"\x18" + good[35:],
        "is said to have 400 bytes, and the file ends after 399": good[:-1],
        "has no samples: it ends before them": good[:36],
        "its samples come before their format": good[:12] + good[36:],
        "its format has 2 bytes": good[:16] + b"\x02" + good[17:],
    }
    for message, file in cases.items():
        (output / "in.wav").write_bytes(file)
        done = subprocess.run(
            [output / "player", output / "in.wav", output / "none.wav"], capture_output=True, text=True
        )
        assert done.returncode == 1 and message in done.stderr, (message, done.stderr)
        assert not (output / "none.wav").exists()
    done = subprocess.run([output / "player", output / "nowhere.wav", output / "none.wav"], capture_output=True)
    assert done.returncode == 1 and b"cannot be opened" in done.stderr


def test_the_player_of_damaged_files(amplifier: tuple[Path, dict[str, float]]) -> None:
    """Files have headers of random bytes, and end anywhere. The player plays what the header says is there, or says
    what is wrong."""
    output, _ = amplifier
    whole, chance, refused = amp.wav(torch.randn(100)), random.Random(7), 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(46)] = chance.choice([0, 1, 2, 255, chance.randrange(256)])
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        (output / "in.wav").write_bytes(data)
        done = subprocess.run(
            [output / "player", output / "in.wav", output / "out.wav"], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr[:8]) in ((0, ""), (1, "player: "))
        refused += done.returncode
    assert 50 < refused < 150


@pytest.fixture(scope="module")
def denoising(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    needs("cc")
    output = tmp_path_factory.mktemp("denoiser")
    return output, denoiser.run(output, most=25)


def test_the_denoiser(denoising: tuple[Path, dict[str, float]]) -> None:
    """Better than nothing after a moment, and the same as a stream and in C."""
    _, figures = denoising
    assert figures["stream_difference"] <= denoiser.BOUND and figures["difference"] <= denoiser.BOUND
    assert figures["gain_0"] > 4 and figures["gain_5"] > 2


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 1000])
def test_the_denoiser_of_any_length(count: int, denoising: tuple[Path, dict[str, float]]) -> None:
    """A last frame that isn't full is as if zeros filled it."""
    output, _ = denoising
    x = torch.sin(torch.arange(1024) / 5) * (torch.arange(1024) < count)
    whole, _ = toolchain.pipe(output / "denoise", x)
    found, said = toolchain.pipe(output / "denoise", x[:count])
    assert torch.equal(found, whole[:count])
    assert said.startswith(f"{-(-count // 128)} frames")


def test_the_spotter(tmp_path: Path) -> None:
    """Right on an emulated board more often than by chance, with the scores of PyTorch, in the memory that its linker
    script allows."""
    needs("arm-none-eabi-gcc", "qemu-system-arm")
    figures = spotter.run(tmp_path, most=400, count=15)
    assert figures["difference"] <= spotter.BOUND
    assert figures["accuracy"] > 0.6
    assert figures["weights"] > 4 * 3 * 32 * (16 + 32) and figures["state"] < figures["ram"] < 16 << 10
    assert figures["weights"] < figures["flash"] < 64 << 10 and 0 < figures["stack"] < 1024


def test_the_spotter_without_words(tmp_path: Path) -> None:
    needs("arm-none-eabi-gcc", "qemu-system-arm")
    torch.manual_seed(1)
    weft.package(spotter.Spotter().eval(), torch.randn(1, 800), tmp_path / "spotter", time=1, targets="cortex-m4")
    image = spotter.link(tmp_path)
    with pytest.raises(RuntimeError, match=r"status 1: words.raw can't be read"):
        spotter.emulate(image)
    (tmp_path / "words.raw").write_bytes(bytes(4 * 8000 - 1))  # not quite a second
    assert [line.split()[0] for line in spotter.emulate(image)] == ["stack"]
    assert (tmp_path / "scores.raw").read_bytes() == b""


def test_the_policy(tmp_path: Path) -> None:
    """A policy that is only partly trained; in C the loop answers as in PyTorch, for the same measurements."""
    needs("cc")
    figures = policy.run(tmp_path, most=300, steps=2000, rate=0)
    assert figures["difference"] <= policy.BOUND
    assert figures["trained"] < 0.5 * figures["untrained"]
    assert 0 < figures["step_median"] <= figures["step_999"] <= figures["step_max"]


def test_the_loop_of_the_policy(tmp_path: Path) -> None:
    """With a clock, and for no steps, one, and a rate that is none."""
    needs("cc")
    torch.manual_seed(1)
    made = policy.Policy(5)
    weft.package(made.step, (made.start(), torch.zeros(2)), tmp_path / "policy")
    program = policy.build(tmp_path)
    for count in (0, 1, 50):
        (tmp_path / "noise.raw").write_bytes(torch.randn(count).numpy().tobytes())
        said = subprocess.run([program, "noise.raw", "trace.raw", "5000"], cwd=tmp_path, capture_output=True, text=True)
        assert said.returncode == 0 and said.stdout.startswith(f"{count} steps")
        assert len(said.stdout.splitlines()) == (1 if count == 0 else 3)
        trace = torch.from_numpy(np.fromfile(tmp_path / "trace.raw", np.float32)).reshape(count, 4)
        if count:
            torch.testing.assert_close(trace[:, 2:], policy.replay(made, trace[:, :2]), atol=1e-5, rtol=0)
    wrong = subprocess.run([program, "noise.raw", "trace.raw", "-1"], cwd=tmp_path, capture_output=True, text=True)
    assert wrong.returncode == 1 and "the rate is a number of steps a second" in wrong.stderr


def test_rust(tmp_path: Path) -> None:
    """The same as PyTorch, in blocks of 64 and with a state that is saved half-way; misuse is an error in words."""
    needs("rustc", "cc")
    assert rust.run(tmp_path, most=20, hidden=8) <= rust.BOUND
    x = torch.randn(300)
    whole, _ = toolchain.pipe(tmp_path / "pipe", x)
    for count in (0, 1, 129):
        assert torch.equal(toolchain.pipe(tmp_path / "pipe", x[:count])[0], whole[:count])
    wrong = subprocess.run([tmp_path / "pipe", "--wrong"], capture_output=True, text=True, check=True).stderr
    assert wrong.splitlines() == [
        "the model takes 1 inputs, but got 0",
        "input 0 has 4 elements in so many steps, but got 3",
        "output 0 is of weft_dtype 8, but got 9",
        f"input 0 has {2**64 - 1} elements in so many steps, but got 4",
        "the state is not one of this model",
    ]


def test_a_tool_that_is_missing_is_told_before_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    for example, names in ((amp, "cc, c\\+\\+"), (spotter, "arm-none-eabi-gcc, qemu-system-arm"), (rust, "rustc")):
        with pytest.raises(FileNotFoundError, match=f"this example needs {names}, which this machine lacks"):
            example.run(tmp_path, seconds=600)
