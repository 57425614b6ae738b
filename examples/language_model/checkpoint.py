"""Checkpoints: written whole or not at all, checked when they are read."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .errors import UserError
from .training import CELLS, Config, Training, new_training

FORMAT = 1


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Either the whole new file is at `path` afterwards, with any new file's permissions, or what was there before."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        mask = os.umask(0)  # there is no other way to ask for it
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        write(Path(name))
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def save(training: Training, characters: str, path: Path) -> None:
    content = {
        "format": FORMAT,
        "config": dataclasses.asdict(training.config),
        "characters": characters,
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "state": training.state,
        "step": training.step,
        "rng": torch.get_rng_state(),
        "losses": training.losses,
        "speeds": training.speeds,
        "validations": training.validations,
    }
    try:
        write_atomically(path, lambda file: torch.save(content, file))
    except (OSError, RuntimeError) as error:  # torch.save words a full disk as RuntimeError
        raise UserError(f"cannot write the checkpoint {path}: {error}") from None


def resume(path: Path, characters: str, given: dict[str, Any]) -> Training:
    """The saved training. `given` are the options that the user named, which must agree with it."""
    try:
        content = torch.load(path, weights_only=True)
        if content["format"] != FORMAT:
            raise UserError(f"{path} has checkpoint format {content['format']}, not {FORMAT}")
        config = Config(**content["config"])
    except OSError as error:
        raise UserError(f"cannot read the checkpoint {path}: {error.strerror}") from None
    except UserError:
        raise
    except Exception:
        raise UserError(f"{path} is not a checkpoint of this program") from None
    for name, value in given.items():
        if getattr(config, name) != value:
            raise UserError(f"--{name} {value} contradicts the checkpoint, which has {getattr(config, name)}")
    if content["characters"] != characters:
        raise UserError(f"{path} was trained on the documentation of another Python version")
    training = new_training(config, len(characters))
    training.model.load_state_dict(content["model"])
    training.optimizer.load_state_dict(content["optimizer"])
    for name in ("state", "step", "losses", "speeds"):
        setattr(training, name, content[name])
    training.validations = [tuple(pair) for pair in content["validations"]]
    torch.set_rng_state(content["rng"])
    return training


def check_plain_load(path: Path, config: Config, without_weft: Callable[[], Any]) -> str:
    """Loads the checkpoint's recurrence into PyTorch's own module and compares the two on a short input.

    Short, because a trained recurrence is chaotic: on random input rounding alone grows to 1e-2 in a hundred steps, in
    eager PyTorch as in Weft, measured against float64.
    """
    content = torch.load(path, weights_only=True)
    weights = {k.removeprefix("rnn."): v for k, v in content["model"].items() if k.startswith("rnn.")}
    module = CELLS[config.cell](config.width, config.width, config.layers)
    module.load_state_dict(weights, strict=True)
    x = torch.randn(min(config.length, 8), 2, config.width, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = module(x)[0]
        with without_weft():
            plain = module(x)[0]
    name = f"nn.{CELLS[config.cell].__name__}"
    return f"{name} loads it with strict=True; its outputs differ by at most {(ours - plain).abs().max():.1e}"
