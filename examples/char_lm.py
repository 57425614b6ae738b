"""Trains a character-level language model on text that every Python has: its own documentation (pydoc_data.topics).

    python examples/char_lm.py                      # a GRU for a minute, then the same steps in eager PyTorch
    python examples/char_lm.py --cell lstm --layers 2 --steps 500
    python examples/char_lm.py --resume out/char_lm.pt

Batches are truncated backpropagation through time: the training text is cut into `batch` streams of equal length, a
step reads the next `length` characters of each, and the hidden state is carried (without its gradient) from step to
step. At the end of the streams it starts over from zeros. Which characters a step reads thus follows from its number
alone, so a resumed run sees what an uninterrupted one would have seen. The last tenth of every topic is kept for
validation.

Ctrl-C (or SIGTERM) ends the training after the step in progress and writes the checkpoint; the exit status is 0.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
BACKENDS = ("weft", "eager", "inductor")
FORMAT = 1  # of the checkpoint


class UserError(Exception):
    """What the user can put right; printed as one line."""


@dataclasses.dataclass(frozen=True)
class Config:
    """What a checkpoint must agree on with the run that resumes it."""

    cell: str = "gru"
    layers: int = 1
    width: int = 256
    batch: int = 16
    length: int = 128
    seed: int = 1
    rate: float = 2e-3
    clip: float = 1.0


# ---- data


@dataclasses.dataclass(frozen=True)
class Text:
    """The text as indices into `characters`."""

    characters: str
    train: Tensor  #: i64[N]
    validation: Tensor  #: i64[M]


def load_text() -> Text:
    from pydoc_data.topics import topics

    parts = [topics[name] for name in sorted(topics)]
    characters = "".join(sorted(set("".join(parts)) | {"\n"}))
    index = {character: i for i, character in enumerate(characters)}

    def encode(chosen: list[str]) -> Tensor:
        return torch.tensor([index[c] for c in "\n".join(chosen)], dtype=torch.long)

    cuts = [len(part) * 9 // 10 for part in parts]
    train = encode([part[:cut] for part, cut in zip(parts, cuts, strict=True)])
    validation = encode([part[cut:] for part, cut in zip(parts, cuts, strict=True)])
    return Text(characters, train, validation)


def held_out_streams(text: Text, config: Config) -> Streams:
    """The validation text, in fewer or shorter streams where it is too short for those of training."""
    length = min(config.length, len(text.validation) - 1)
    return Streams(text.validation, min(config.batch, (len(text.validation) - 1) // length), length)


class Streams:
    """A text cut into `batch` parts of equal length, read `length` characters at a time."""

    def __init__(self, text: Tensor, batch: int, length: int) -> None:
        each = (len(text) - 1) // batch
        if each < length:
            raise UserError(
                f"{batch} streams of {length} characters need {batch * length + 1}; the text has {len(text)}"
            )
        self.length = length
        self.windows = each // length
        self.inputs = text[: each * batch].view(batch, each).t().contiguous()  # [time, batch]
        self.targets = text[1 : each * batch + 1].view(batch, each).t().contiguous()

    def window(self, step: int) -> tuple[Tensor, Tensor, bool]:
        """Inputs and targets [length, batch] of a step, and whether the streams start over with it."""
        at = step % self.windows
        part = slice(at * self.length, (at + 1) * self.length)
        return self.inputs[part], self.targets[part], at == 0


# ---- model

State = Any  # a tensor, or LSTM's pair


class CharModel(nn.Module):
    """Embedding, recurrence, linear: indices [T, B] and a state to logits [T, B, characters] and the next state."""

    def __init__(self, characters: int, cell: str, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.rnn = CELLS[cell](width, width, layers)
        self.linear = nn.Linear(width, characters)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        y, state = self.rnn(self.embedding(x), state)
        return self.linear(y), state

    def zero_state(self, batch: int) -> State:
        h = torch.zeros(self.rnn.num_layers, batch, self.rnn.hidden_size)
        return (h, h.clone()) if isinstance(self.rnn, nn.LSTM) else h


def loss_of(model: CharModel, x: Tensor, y: Tensor, state: State) -> tuple[Tensor, State]:
    """The mean cross entropy in nats a character, and the next state without its gradient."""
    logits, state = model(x, state)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    return loss, tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


@dataclasses.dataclass
class Training:
    """All that changes while training. `state` is carried to step `step`."""

    config: Config
    model: CharModel
    optimizer: torch.optim.Optimizer
    state: State
    step: int = 0
    losses: list[float] = dataclasses.field(default_factory=list)  #: one a step, from step 0
    speeds: list[float] = dataclasses.field(default_factory=list)  #: characters a second, one a step
    validations: list[tuple[int, float]] = dataclasses.field(default_factory=list)  #: (step, loss)


def new_training(config: Config, characters: int) -> Training:
    torch.manual_seed(config.seed)
    model = CharModel(characters, config.cell, config.layers, config.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.rate, fused=True)
    return Training(config, model, optimizer, model.zero_state(config.batch))


def train_step(training: Training, loss_fn: Callable[..., tuple[Tensor, State]], data: Streams) -> float:
    """One optimiser step; returns its loss and appends loss and speed."""
    start = time.perf_counter()
    x, y, restart = data.window(training.step)
    state = training.model.zero_state(training.config.batch) if restart else training.state
    training.optimizer.zero_grad(set_to_none=True)
    loss, training.state = loss_fn(training.model, x, y, state)
    loss.backward()
    nn.utils.clip_grad_norm_(training.model.parameters(), training.config.clip)
    training.optimizer.step()
    training.step += 1
    training.losses.append(loss.item())
    training.speeds.append(x.numel() / (time.perf_counter() - start))
    return training.losses[-1]


@torch.no_grad()
def validate(training: Training, data: Streams) -> float:
    """The loss over the whole validation text, not through the compiled graph: so that stays one."""
    state, total = training.model.zero_state(data.inputs.shape[1]), 0.0
    for window in range(data.windows):
        x, y, _ = data.window(window)
        loss, state = loss_of(training.model, x, y, state)
        total += loss.item()
    training.validations.append((training.step, total / data.windows))
    return total / data.windows


@torch.no_grad()
def sample(model: CharModel, characters: str, count: int, temperature: float = 0.7) -> str:
    """Text that the model writes, from a generator of its own: training's random numbers stay as they are."""
    generator = torch.Generator().manual_seed(0)
    state, x, text = model.zero_state(1), torch.tensor([[characters.index("\n")]]), []
    for _ in range(count):
        logits, state = model(x, state)
        x = torch.multinomial((logits[0] / temperature).softmax(-1), 1, generator=generator)
        text.append(characters[int(x)])
    return "".join(text)


# ---- checkpoints


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Either the whole new file is at `path` afterwards or what was there before."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
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
    """The training as it was saved; `given` are the options that the user named, which must agree with it."""
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


# ---- progress


class Progress:
    """A bar on a terminal, plain lines elsewhere."""

    def __init__(self, what: str, steps: int | None, seconds: float | None) -> None:
        self.what, self.steps, self.seconds = what, steps, seconds
        self.start, self.first, self.printed = time.perf_counter(), None, -math.inf
        self.bar: Any = None

    def __enter__(self) -> Progress:
        if sys.stdout.isatty():
            with contextlib.suppress(ImportError):
                self.bar = self._rich_bar()
                self.bar.start()
                self.task = self.bar.add_task(self.what, total=1.0, note="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    @staticmethod
    def _rich_bar() -> Any:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        return RichProgress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn()
        )

    def update(self, step: int, note: str) -> None:
        now = time.perf_counter() - self.start
        self.first = step if self.first is None else self.first
        if self.bar:
            parts = [now / self.seconds if self.seconds else 0.0]
            if self.steps:
                parts.append((step - self.first + 1) / (self.steps - self.first + 1))
            self.bar.update(self.task, completed=max(parts), note=f"step {step}  {note}")
        elif now - self.printed >= 5.0:
            self.printed = now
            print(f"{self.what}: {now:5.1f} s  step {step}  {note}", flush=True)


class Interrupt:
    """The first SIGINT or SIGTERM asks for an end after this step; the second has its usual effect."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> Interrupt:
        self.usual = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.usual.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        self.signal = number
        signal.signal(number, self.usual[number])


# ---- the run


@dataclasses.dataclass
class Run:
    options: argparse.Namespace
    text: Text
    training: Training
    weft: Any  #: the module, or None for plain PyTorch
    interrupt: Interrupt
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        return self.options.out / "char_lm.pt"

    def without_weft(self) -> Any:
        return self.weft.disabled() if self.weft else contextlib.nullcontext()

    def say(self, line: str) -> None:
        print(line, flush=True)


def recent(values: list[float], count: int = 50) -> float:
    return statistics.fmean(values[-count:]) if values else math.nan


def steady_speed(training: Training, first: int) -> float:
    """The median speed in characters a second from step `first` on, without the first ones, which compile."""
    speeds = training.speeds[first:]
    return statistics.median(speeds[3:] or speeds) if speeds else math.nan


def until_done(run: Run, steps: int | None, seconds: float | None, training: Training) -> Iterator[None]:
    start = time.perf_counter()
    while not run.interrupt.signal:
        if steps is not None and training.step >= steps:
            return
        if seconds is not None and time.perf_counter() - start >= seconds:
            return
        yield


def train(run: Run) -> None:
    """Trains with the chosen backend until steps, seconds or a signal end it, and leaves a checkpoint."""
    options, training = run.options, run.training
    config = training.config
    loss_fn = loss_of if options.backend == "eager" else torch.compile(loss_of, backend=options.backend, fullgraph=True)
    data = Streams(run.text.train, config.batch, config.length)
    held_out = held_out_streams(run.text, config)
    first, saved = training.step, time.perf_counter()
    weft_seconds = run.weft.stats()["compile_seconds"] if run.weft else 0.0
    with Progress(options.backend, options.steps, options.seconds) as progress:
        for _ in until_done(run, options.steps, options.seconds, training):
            train_step(training, loss_fn, data)
            if run.weft and training.step == first + 1:
                run.summary["weft_compile_seconds"] = run.weft.stats()["compile_seconds"] - weft_seconds
            if training.step % options.validate_every == 0:
                validate(training, held_out)
            note = f"loss {recent(training.losses, 20):.3f}  {recent(training.speeds, 20) / 1e3:.1f}k characters/s"
            if training.validations:
                note += f"  validation {training.validations[-1][1]:.3f}"
            progress.update(training.step, note)
            if time.perf_counter() - saved > 15.0:  # for the kill that can't be caught
                save(training, run.text.characters, run.checkpoint)
                saved = time.perf_counter()
    if not training.validations or training.validations[-1][0] != training.step:
        validate(training, held_out)
    save(training, run.text.characters, run.checkpoint)
    run.summary |= {
        "backend": options.backend,
        "steps": training.step - first,
        "step": training.step,
        "loss": recent(training.losses),
        "validation_loss": training.validations[-1][1],
        "characters_per_second": steady_speed(training, first),
    }


def compare_with_eager(run: Run, start: Training) -> Training:
    """The same steps from the same state in PyTorch without weft, as many as take `--compare-seconds`."""
    first = start.step
    data = Streams(run.text.train, start.config.batch, start.config.length)
    with run.without_weft(), Progress("eager", run.training.step, run.options.compare_seconds) as progress:
        for _ in until_done(run, run.training.step, run.options.compare_seconds, start):
            train_step(start, loss_of, data)
            note = f"loss {recent(start.losses, 20):.3f}  {recent(start.speeds, 20) / 1e3:.1f}k characters/s"
            progress.update(start.step, note)
    if start.step > first:
        pairs = zip(run.training.losses[first:], start.losses[first:], strict=False)
        speed = steady_speed(start, first)
        run.summary |= {
            "eager_steps": start.step - first,
            "eager_characters_per_second": speed,
            "ratio": run.summary["characters_per_second"] / speed,
            "largest_loss_difference": max(abs(a - b) for a, b in pairs),
        }
    return start


def compile_counts() -> dict[str, Any]:
    """Dynamo's own counts in this process: graphs, and seconds from the first byte code to the compiled function."""
    from torch._dynamo import utils

    return {
        "graphs": utils.counters["stats"]["unique_graphs"],
        "graph_breaks": sum(utils.counters["graph_break"].values()),
        "compile_seconds": utils.calculate_time_spent().get("total_wall_time", 0.0),
    }


def report(run: Run) -> None:
    s, say = run.summary, run.say
    bits = s["validation_loss"] / math.log(2)
    say(f"\n{s['backend']}: {s['steps']} steps, {s['characters_per_second'] / 1e3:.1f}k characters/s")
    say(f"loss at step {s['step']}: {s['loss']:.4f} nats, validation {s['validation_loss']:.4f} ({bits:.2f} bits)")
    if "graphs" in s:
        graphs = f"{s['graphs']} graph{'s' if s['graphs'] != 1 else ''}"
        own = f"; weft's programs for it took {s['weft_compile_seconds'] * 1e3:.0f} ms"
        say(f"compiled: {graphs}, {s['graph_breaks']} breaks, {s['compile_seconds']:.2f} s in all{own}")
    if "ratio" in s:
        eager = s["eager_characters_per_second"] / 1e3
        say(f"eager PyTorch, {s['eager_steps']} of these steps: {eager:.1f}k characters/s")
        say(f"ratio: {s['backend']} is {s['ratio']:.2f} times as fast as eager")
        say(f"largest difference of the losses: {s['largest_loss_difference']:.1e}")
    say(f"\ncheckpoint {run.checkpoint}: {check_plain_load(run.checkpoint, run.training.config, run.without_weft)}")


def plot(run: Run, eager: Training | None, first: int) -> Path:
    """Two panels, loss and speed over steps, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    training, path = run.training, run.options.out / "char_lm.png"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    steps = range(1, training.step + 1)
    name = run.options.backend
    left.plot(steps, training.losses, color="tab:blue", alpha=0.8, linewidth=0.9, label=f"training, {name}")
    if eager and eager.step > first:
        span = range(first + 1, eager.step + 1)
        left.plot(
            span, eager.losses[first:], color="tab:orange", linestyle="--", linewidth=0.9, label="training, eager"
        )
        right.plot(span, [v / 1e3 for v in eager.speeds[first:]], color="tab:orange", linewidth=0.9, label="eager")
    if training.validations:
        left.plot(
            *zip(*training.validations, strict=True), color="tab:red", marker="o", markersize=3, label="validation"
        )
    right.plot(steps, [v / 1e3 for v in training.speeds], color="tab:blue", linewidth=0.9, label=name)
    left.set(xlabel="step", ylabel="loss (nats per character)", title="Loss")
    right.set(xlabel="step", ylabel="thousand characters per second", title="Training speed", ylim=(0, None))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=130))
    pyplot.close(figure)
    return path


def finish(run: Run, eager: Training | None, first: int) -> None:
    report(run)
    if run.options.sample:
        text = sample(run.training.model, run.text.characters, run.options.sample)
        run.say("\n--- a sample ---\n" + text + "\n---")
    try:
        path = plot(run, eager, first)
        run.say(f"plot: {path}")
    except ImportError:
        run.say("no plot: matplotlib is not installed")
    summary = json.dumps(run.summary, indent=2) + "\n"
    write_atomically(run.options.out / "char_lm.json", lambda file: file.write_text(summary) and None)


# ---- options


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(message)


def positive(kind: type, zero: bool = False) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (value > 0 or (zero and value == 0)) or value == math.inf:
            raise argparse.ArgumentTypeError(f"{text!r} is not a positive {'whole ' if kind is int else ''}number")
        return value

    return convert


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(description="Trains a character-level language model on Python's documentation.")
    number = {"type": positive(int), "metavar": "N"}
    defaults = Config()
    parser.add_argument("--cell", choices=sorted(CELLS), help=f"the recurrence ({defaults.cell})")
    parser.add_argument("--layers", **number, help=f"recurrent layers ({defaults.layers})")
    parser.add_argument("--width", **number, help=f"units of a layer ({defaults.width})")
    parser.add_argument("--batch", **number, help=f"streams read at once ({defaults.batch})")
    parser.add_argument("--length", **number, help=f"characters of a step in a stream ({defaults.length})")
    parser.add_argument("--seed", type=positive(int, zero=True), metavar="N", help=f"of the weights ({defaults.seed})")
    parser.add_argument("--backend", choices=BACKENDS, default="weft", help="what compiles the step (weft)")
    parser.add_argument("--steps", **number, help="train up to this step instead of for --seconds")
    parser.add_argument("--seconds", type=positive(float), help="train for so long (60, without --steps)")
    parser.add_argument("--compare-seconds", type=positive(float, zero=True), default=20.0, metavar="S",
                        help="at most so long for the same steps in eager PyTorch; 0 leaves them out (20)")  # fmt: skip
    parser.add_argument("--validate-every", **number, default=100, help="steps from validation to validation (100)")
    parser.add_argument("--sample", type=positive(int, zero=True), default=400, metavar="N", help="characters to write")
    parser.add_argument("--threads", **number, help="of PyTorch and weft")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="checkpoint, plot, summary (out/)")
    parser.add_argument("--resume", type=Path, metavar="PATH", help="go on from this checkpoint")
    options = parser.parse_args(arguments)
    if options.steps is None and options.seconds is None:
        options.seconds = 60.0
    return options


def check_out(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror}") from None


def import_weft(backend: str) -> Any:
    if backend == "eager":
        return None
    try:
        import weft
    except ImportError as error:
        raise UserError(f"weft can't be imported ({error}): build it with `make`, or use --backend eager") from None
    return weft


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after an error that the user can put right."""
    try:
        return prepare(parse(arguments))
    except (UserError, OSError) as error:
        print(f"char_lm: error: {error}", file=sys.stderr)
        return 2


def prepare(options: argparse.Namespace) -> int:
    check_out(options.out)
    if options.threads:
        torch.set_num_threads(options.threads)
    text = load_text()
    names = [field.name for field in dataclasses.fields(Config) if hasattr(options, field.name)]
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.resume:
        training = resume(options.resume, text.characters, given)
        if options.steps is not None and options.steps <= training.step:
            raise UserError(f"--steps {options.steps}: the checkpoint is at step {training.step} already")
    else:
        training = new_training(Config(**given), len(text.characters))
    weft = import_weft(options.backend)
    Streams(text.train, training.config.batch, training.config.length)  # a batch too large is an error now, not later
    with Interrupt() as interrupt:
        run = Run(options, text, training, weft, interrupt)
        return carry_out(run)


def carry_out(run: Run) -> int:
    training, options = run.training, run.options
    first = training.step
    config = ", ".join(f"{k} {v}" for k, v in dataclasses.asdict(training.config).items())
    run.say(
        f"{config}; {sum(p.numel() for p in training.model.parameters())} parameters, {torch.get_num_threads()} threads"
    )
    run.say(f"{len(run.text.train)} characters to train on, {len(run.text.validation)} to validate on")
    start = copy_of(training)
    before = None if options.backend == "eager" else compile_counts()
    train(run)
    if before:
        run.summary |= {name: value - before[name] for name, value in compile_counts().items()}
    eager = None
    if run.interrupt.signal:
        run.say(f"\nended by {signal.Signals(run.interrupt.signal).name}; go on with --resume {run.checkpoint}")
    elif options.backend != "eager" and options.compare_seconds > 0:
        eager = compare_with_eager(run, start)
    finish(run, eager, first)
    return 0


def copy_of(training: Training) -> Training:
    """An independent copy, for the same steps once more."""
    fresh = new_training_like(training)
    fresh.model.load_state_dict(training.model.state_dict())
    fresh.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))
    return fresh


def new_training_like(training: Training) -> Training:
    rng = torch.get_rng_state()
    fresh = new_training(training.config, training.model.embedding.num_embeddings)
    torch.set_rng_state(rng)
    return dataclasses.replace(
        fresh,
        state=copy.deepcopy(training.state),
        step=training.step,
        losses=list(training.losses),
        speeds=list(training.speeds),
    )


if __name__ == "__main__":
    sys.exit(main())
