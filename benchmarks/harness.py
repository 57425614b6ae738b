"""Shared by compare.py and cells.py: options, the cores they run on, and how peers take turns."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from peers import Prepared, SkipCase

ROOT = Path(__file__).resolve().parent.parent


def comma_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def refuse_unknown(
    parser: argparse.ArgumentParser, options: argparse.Namespace, known: Mapping[str, Collection[str]]
) -> None:
    """A parser error if a list option has an unknown value."""
    for name, there_are in known.items():
        for value in getattr(options, name):
            if value not in there_are:
                parser.error(f"--{name}: there is no '{value}'; there are {', '.join(there_are)}")


def default_threads() -> int:
    return min(2, len(os.sched_getaffinity(0)))


def use_cores(threads: int) -> None:
    """Every peer, in this process or its child, has the same cores from here on."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)


def new_report(machine: dict[str, Any]) -> dict[str, Any]:
    """Machine, versions, commit and date; no cases yet."""
    return {
        "machine": {"cpu": processor(), "instructions": instructions(), **machine},
        "versions": versions(),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cases": [],
    }


def versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "jax", "onnxruntime", "openvino", "onednn-cpu-gomp", "weft"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def processor_fields() -> dict[str, str]:
    """What Linux says of the first processor."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields


def instructions() -> str:
    """The widest vectors that Weft uses here, also by order (WEFT_ISA)."""
    has_wide = "avx512f" in processor_fields().get("flags", "").split()
    return "AVX-512" if has_wide and os.environ.get("WEFT_ISA") not in ("avx2", "generic") else "AVX2"


def processor() -> str:
    """The processor's name, with the numbers that distinguish generations of the same name."""
    fields = processor_fields()
    if "model name" not in fields:
        return "unknown"
    return f"{fields['model name']} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def commit() -> str:
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip()


def skipped(error: Exception) -> dict[str, str]:
    """The entry of a peer that could not be prepared. A broken peer does not end the run of the others."""
    if isinstance(error, SkipCase):
        return {"skipped": str(error)}
    if isinstance(error, ImportError):
        return {"skipped": f"not installed: {error}"}
    return {"skipped": f"FAILED: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}


def interleaved(ready: Mapping[str, Prepared], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of each call by peer; peers take turns, so that a slow minute of the machine meets all alike."""
    samples: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, prepared in ready.items():
            time.sleep(0.03)  # until the threads of the one before stop spinning
            samples[name] += prepared.time(seconds)
    return samples
