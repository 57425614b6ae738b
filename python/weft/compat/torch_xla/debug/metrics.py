"""`torch_xla.debug.metrics`: what the device did, by the names that PyTorch/XLA has for the same.

Counters: `MarkStep`; `UncachedCompile`, programs that were compiled for records; `CachedCompile`, steps whose program
was there; and by its name (`aten::nonzero`, `aten::_local_scalar_dense` for `.item()`) each operation that ran at once
because its result depends on values. Metrics: `CompileTime`, of all programs of the process, and `ExecuteTime`, of what
`mark_step` and `sync` ran. Both in nanoseconds, as PyTorch/XLA has them.
"""

from __future__ import annotations

from weft import device as weft_device
from weft._capture.stats import stats
from weft.compat.torch_xla import _steps

#: The number of samples, their sum, and the last of them as (time since the epoch, value), all in nanoseconds.
Data = tuple[int, float, list[tuple[float, float]]]

_counters_before: dict[str, int] = {}
_metrics_before: dict[str, Data] = {}


def _counters() -> dict[str, int]:
    """Since the process began."""
    did = weft_device.stats()
    found = {
        "MarkStep": _steps.marked,
        "UncachedCompile": did["programs"],
        "CachedCompile": did["compiled_batches"] - did["programs"],
    }
    for operation, places in did["ran_at_once"].items():
        name = operation.split(".")[0]
        found[name] = found.get(name, 0) + sum(places.values())
    return found


def _metrics() -> dict[str, Data]:
    did = stats()
    with _steps.lock:
        clock = _steps.execution
        execution = (clock.count, clock.total * 1e9, [(when * 1e9, took * 1e9) for when, took in clock.samples])
    return {"CompileTime": (did["compiled"], did["compile_seconds"] * 1e9, []), "ExecuteTime": execution}


def _counted() -> dict[str, int]:
    since = {name: value - _counters_before.get(name, 0) for name, value in _counters().items()}
    return {name: value for name, value in since.items() if value > 0}


def _measured() -> dict[str, Data]:
    found = {}
    for name, (count, total, samples) in _metrics().items():
        before, sum_before, _ = _metrics_before.get(name, (0, 0.0, []))
        if count > before:
            found[name] = (count - before, total - sum_before, samples[-(count - before) :])
    return found


def counter_names() -> list[str]:
    """The names of counters that aren't 0."""
    return list(_counted())


def counter_value(name: str) -> int | None:
    """The counter's value; None if it is 0, or there is no such counter."""
    return _counted().get(name)


def metric_names() -> list[str]:
    """The names of metrics that have samples."""
    return list(_measured())


def metric_data(name: str) -> Data | None:
    """How many samples, their sum in nanoseconds, and the last of them, as (time since the epoch, value) in
    nanoseconds, where they are kept one by one. None: there is no such metric, or it has no samples."""
    return _measured().get(name)


def clear_counters() -> None:
    _counters_before.update(_counters())


def clear_metrics() -> None:
    _metrics_before.update(_metrics())


def clear_all() -> None:
    clear_metrics()
    clear_counters()


def metrics_report() -> str:
    """All metrics and counters as text."""
    return _report(_measured(), _counted())


def short_metrics_report(counter_names: list[str] | None = None, metric_names: list[str] | None = None) -> str:
    """The named metrics and counters, by default CachedCompile and MarkStep, CompileTime and ExecuteTime; and always
    the operations that ran at once."""
    counters = counter_names or ["CachedCompile", "MarkStep"]
    metrics = metric_names or ["CompileTime", "ExecuteTime"]
    measured, counted = _measured(), _counted()
    return _report(
        {name: measured[name] for name in metrics if name in measured},
        {name: value for name, value in counted.items() if name in counters or name.startswith("aten::")},
    )


def executed_fallback_ops() -> list[str]:
    """Names of the operations that ran at once: `aten::_local_scalar_dense` of `.item()`, `aten::nonzero`."""
    return [name for name in _counted() if name.startswith("aten::")]


def _report(metrics: dict[str, Data], counters: dict[str, int]) -> str:
    lines = []
    for name, (count, total, samples) in metrics.items():
        lines += [f"Metric: {name}", f"  TotalSamples: {count}", f"  Accumulator: {_time(total)}"]
        if samples:
            values = sorted(value for _, value in samples)
            points = [f"{p}%={_time(values[min(len(values) * p // 100, len(values) - 1)])}" for p in (1, 50, 90, 99)]
            lines.append(f"  Percentiles: {'; '.join(points)}")
    for name, value in counters.items():
        lines += [f"Counter: {name}", f"  Value: {value}"]
    return "\n".join(lines) + "\n"


def _time(nanoseconds: float) -> str:
    """The time as 01m02s003ms004.005us, without leading zero parts."""
    minutes, rest = divmod(nanoseconds * 1e-9, 60)
    whole, part = divmod(rest, 1)
    thousandths, millionths = divmod(part * 1e6, 1e3)
    text = f"{int(thousandths):03d}ms{millionths:.3f}us"
    if minutes or whole:
        text = f"{int(whole):02d}s{text}"
    return f"{int(minutes):02d}m{text}" if minutes else text
