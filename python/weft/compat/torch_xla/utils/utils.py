"""`torch_xla.utils.utils`: the helpers that scripts and examples use."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import Tensor

from weft.compat.torch_xla._data import DataWrapper, values_in, with_others

__all__ = [
    "DataWrapper",
    "FnDataGenerator",
    "SampleGenerator",
    "as_list",
    "check_env_flag",
    "eprint",
    "flatten_nested_tuple",
    "for_each_instance",
    "for_each_instance_rewrite",
    "getenv_as",
    "list_copy_append",
    "parallel_work",
    "timed",
]


class SampleGenerator:
    """Gives `data` `sample_count` times."""

    def __init__(self, data: Any, sample_count: int) -> None:
        self._data, self._count = data, sample_count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return (self._data for _ in range(self._count))


class FnDataGenerator:
    """Gives `x = gen_tensor(batch_size, *dims)` and `func(x)`, `count` times; `dims` is [1] unless it is given."""

    def __init__(
        self,
        func: Callable[[Tensor], Tensor],
        batch_size: int,
        gen_tensor: Callable[..., Tensor],
        dims: Sequence[int] | None = None,
        count: int = 1,
    ) -> None:
        self._func, self._generate, self._count = func, gen_tensor, count
        self._sizes = (batch_size, *(dims or [1]))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(self._count):
            x = self._generate(*self._sizes)
            yield x, self._func(x)


def as_list(t: Any) -> Any:
    """A tuple or list itself, any other value in a list."""
    return t if isinstance(t, (tuple, list)) else [t]


def getenv_as(name: str, type: Callable[[Any], Any], defval: Any = None) -> Any:
    """The variable of the environment as `type`; a bool is written as a number."""
    value = os.environ.get(name)
    if value is None:
        return defval
    return type(int(value)) if type is bool else type(value)


def check_env_flag(name: str, default: str = "") -> bool:
    """Whether the variable is `true` or a number above 0."""
    flag = os.getenv(name, default)
    return flag == "true" or (flag.isdigit() and int(flag) > 0)


def flatten_nested_tuple(inputs: Any) -> tuple[Any, ...]:
    """The items of tuples and lists at any depth."""
    if not isinstance(inputs, (tuple, list)):
        return (inputs,)
    return tuple(leaf for each in inputs for leaf in flatten_nested_tuple(each))


def for_each_instance(value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]) -> None:
    """Calls `fn` with each value that is selected, once: in containers of any kind, and in attributes of objects."""
    for each in values_in(value, select_fn):
        fn(each)


def for_each_instance_rewrite(value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]) -> Any:
    """A copy of `value` with `fn` of each value that is selected in its place. Containers keep their types."""
    return with_others(value, select_fn, fn)


def list_copy_append(ilist: Sequence[Any], item: Any) -> list[Any]:
    return [*ilist, item]


def eprint(*args: Any, **kwargs: Any) -> None:
    """Prints to stderr."""
    print(*args, file=sys.stderr, **kwargs)


def timed(fn: Callable[[], Any], msg: str = "", printfn: Callable[[str], Any] = eprint) -> Any:
    """Calls `fn()` and prints how long it took. Operations that it recorded have not run by then."""
    begin = time.time()
    result = fn()
    printfn(f"{msg}{1000 * (time.time() - begin):.3f}ms")
    return result


def parallel_work(num_workers: int, fn: Callable[..., Any], *args: Sequence[Any]) -> list[Any]:
    """`fn` of each of `args`, in threads. Raises the error that one of the calls raises."""
    with ThreadPoolExecutor(num_workers) as threads:
        return list(threads.map(fn, *args))
