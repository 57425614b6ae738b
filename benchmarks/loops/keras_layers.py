"""Training steps of Keras's LSTM and GRU on its PyTorch backend, by Keras's loop and by weft.compat.keras.

Usage: keras_layers.py [CALLS]     prints a table; CALLS timed steps each, 15 by default
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"
sys.path.insert(0, str(Path(__file__).parents[1]))

import keras
import numpy as np

import weft.compat.keras
from measure import median_ms

BATCH, INPUT = 32, 32


def model(layer: str, units: int, steps: int) -> Any:
    made = keras.Sequential(
        [keras.layers.Input((steps, INPUT)), getattr(keras.layers, layer)(units), keras.layers.Dense(1)]
    )
    made.compile(optimizer="adam", loss="mse")
    return made


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print("| layer | units | T | Keras ms | Weft ms | times faster |\n|" + " --- |" * 6)
    for layer in ("LSTM", "GRU", "SimpleRNN"):
        for units in (64, 256):
            for steps in (30, 200):
                x = np.random.normal(size=(BATCH, steps, INPUT)).astype("float32")
                y = np.random.normal(size=(BATCH, 1)).astype("float32")
                times = []
                for ours in (False, True):
                    (weft.compat.keras.install if ours else weft.compat.keras.uninstall)()
                    trained = model(layer, units, steps)
                    times.append(median_ms(lambda m=trained, x=x, y=y: m.train_on_batch(x, y), calls, warm_up=2))
                print(f"| {layer} | {units} | {steps} | {times[0]:.1f} | {times[1]:.1f} | {times[0] / times[1]:.1f} |")


if __name__ == "__main__":
    main()
