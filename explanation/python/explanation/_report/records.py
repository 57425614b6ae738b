"""The data of a report. docs/explain.schema.json describes its JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

VERSION = 1  #: of the JSON


@dataclasses.dataclass(frozen=True)
class Frame:
    """A line of a call path."""

    file: str
    line: int
    function: str
    code: str


@dataclasses.dataclass(frozen=True)
class Measured:
    """Seconds, or a difference of seconds: the median and its 95 % confidence interval."""

    median: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0: an effect was measured."""
        return self.low > 0 or self.high < 0


@dataclasses.dataclass
class Break:
    """One line of the user's code at which Dynamo ends a graph, for one reason."""

    id: int
    file: str
    line: int
    function: str
    source: str  #: the line's text
    type: str  #: Dynamo's name of the reason
    code: str  #: the reason's number in Dynamo's registry, such as GB0170; empty if it has none
    reason: str  #: the same in plain words
    explanation: str  #: Dynamo's
    hints: list[str]  #: Dynamo's
    context: str  #: Dynamo's, for its developers
    skips_frame: bool  #: the whole function ran in eager mode, not just this line
    skipped_by: str  #: the reason for that, as Dynamo names it
    hidden: bool  #: Dynamo reached it only once another break had been mended
    met: int  #: how often Dynamo met it while it compiled
    paths: list[list[Frame]]  #: the different ways by which the line was reached, outermost first
    hits: float | None = None  #: per step
    gap: Measured | None = None  #: time per step between the graph that it ended and the next one
    backward_gap: Measured | None = None  #: the same between their backwards
    bytes: int | None = None  #: what the graph that it ended handed on, per step
    cost: Measured | None = None  #: seconds per step
    cost_kind: str = "unknown"  #: "measured" by mending it, "estimated" as the gap, "unknown"
    shared_with: list[int] = dataclasses.field(default_factory=list)  #: breaks that cost's change mends too


@dataclasses.dataclass
class Hlo:
    """XLA's counts for a graph or a program. A place in its code counts once, however often a loop runs it."""

    operations: int | None  #: HLO operations after optimisation; None: it was not counted
    fusions: int | None
    kernels: int | None  #: fusions, and operations outside of them
    note: str  #: why it was not counted, or what was
    opcodes: dict[str, int] = dataclasses.field(default_factory=dict)  #: the operations, by opcode


@dataclasses.dataclass
class Program:
    """A program of Weft's in the graphs of the backend weft."""

    id: int
    ops: int  #: of Weft's language
    calls: int  #: in the graphs
    hlo: Hlo | None  #: None: jax is not installed


@dataclasses.dataclass
class Graph:
    """A graph of Dynamo's, with the backend's counts."""

    id: int
    compile_id: str
    function: str
    file: str
    line: int
    ops: int
    ended_by: int | None  #: the break; None: the function returned
    aot: int  #: graphs of AOTAutograd: forward, backward, inference
    kernels: int | None  #: calls of kernels in Inductor's code; None: another backend
    compile_seconds: float
    hits: float | None = None  #: per step
    seconds: Measured | None = None  #: per step
    backward_seconds: Measured | None = None  #: of its backward, per step; None: there is none that is one graph
    hlo: Hlo | None = None  #: None: not looked at
    backwards: int = 0  #: of the graphs of AOTAutograd
    kernel_calls: dict[str, int] = dataclasses.field(default_factory=dict)  #: of the kernels, by name


@dataclasses.dataclass
class Recompile:
    """A function compiled anew because a guard failed."""

    function: str
    file: str
    line: int
    guards: list[str]  #: what held for the code that was there, and no longer did
    times: int  #: how often, but for numbers in the guards
    seconds: float  #: that they took together
    advice: str
    change: str = ""  #: a unified diff of the user's file, or words; empty where none was tried with success
    tried: bool = False  #: compiled with the change, for the calls that the program made
    outcome: str = ""  #: what the trial showed, or why there was none
    saved: Measured | None = None  #: seconds of compiling, once
    gain: Measured | None = None  #: seconds per step


@dataclasses.dataclass
class Action:
    """One change that mends breaks."""

    id: int
    breaks: list[int]
    title: str
    change: str  #: a unified diff of the user's file, a line of settings, or words
    kind: str  #: "rewrite", "setting", "bridge" for a way around a break, "device" for one around all, or "advice"
    tried: bool  #: applied to a copy and run
    outcome: str  #: what the trial showed, or why there was none
    gain: Measured | None = None  #: seconds per step
    share: float | None = None  #: of the step
    graphs: int | None = None  #: with the change
    kernels: int | None = None  #: that Inductor wrote, with the change


@dataclasses.dataclass
class Stage:
    """The number of pieces into which one way of compiling divides a step."""

    name: str  #: "FX", "AOT", "kernels", "weft", "lazy", "StableHLO", "kernels of XLA"
    count: int | None  #: the number of pieces of a step; None: the stage was not run
    why: str  #: why it differs from the stage before


@dataclasses.dataclass
class Run:
    """One way in which steps were run."""

    name: str  #: "eager", "compiled", "mended", "lazy"
    seconds: Measured | None  #: a step; None: not measured
    graphs: int | None  #: FX graphs, or programs of the lazy device
    kernels: int | None  #: that Inductor wrote
    bytes_moved: int | None  #: by Inductor's kernels, as it counts
    note: str
    breaks: int | None = None  #: distinct lines at which a step is cut
    memory: int | None = None  #: the most bytes of tensors at once in a step
    causes: list[str] = dataclasses.field(default_factory=list)  #: of the breaks, each with its line


@dataclasses.dataclass
class Event:
    """A part of the time line: of a step, in seconds from its begin."""

    begin: float
    end: float
    graph: int | None  #: None: between graphs
    broken_by: int | None
    backward: bool = False  #: a graph's backward; between graphs: after one


@dataclasses.dataclass
class Excerpt:
    """Lines of a file around breaks."""

    file: str
    first: int  #: number of the first line
    lines: list[str]


@dataclasses.dataclass
class Subject:
    """A function or module that was given to torch.compile; or a loop on the lazy device, with the backend "lazy"."""

    name: str
    file: str
    line: int
    backend: str
    train: bool
    calls: int
    graphs: list[Graph] = dataclasses.field(default_factory=list)
    breaks: list[Break] = dataclasses.field(default_factory=list)
    recompiles: list[Recompile] = dataclasses.field(default_factory=list)
    actions: list[Action] = dataclasses.field(default_factory=list)
    programs: list[Program] = dataclasses.field(default_factory=list)
    stages: list[Stage] = dataclasses.field(default_factory=list)
    runs: list[Run] = dataclasses.field(default_factory=list)
    timeline: list[Event] = dataclasses.field(default_factory=list)
    sources: list[Excerpt] = dataclasses.field(default_factory=list)
    compile_seconds: float = 0.0
    weft: dict[str, Any] = dataclasses.field(default_factory=dict)  #: counts of weft.stats() and of the backend
    notes: list[str] = dataclasses.field(default_factory=list)

    def run(self, name: str) -> Run | None:
        """The run of that name."""
        return next((run for run in self.runs if run.name == name), None)

    @property
    def base(self) -> Run | None:
        """The unchanged step."""
        return self.run("lazy" if self.backend == "lazy" else "compiled")


@dataclasses.dataclass
class Warned:
    """A warning of PyTorch's compiler, which without `weft explain` would stand on the console."""

    source: str  #: the logger's name, or the warning's class
    text: str
    times: int


@dataclasses.dataclass
class Results:
    """A whole report."""

    command: str
    torch: str
    machine: str
    interrupted: bool
    subjects: list[Subject]
    notes: list[str]
    warnings: list[Warned] = dataclasses.field(default_factory=list)  #: distinct ones
    version: int = VERSION

    @property
    def breaks(self) -> int:
        """How many distinct breaks there are."""
        return sum(len(subject.breaks) for subject in self.subjects)
