"""Which nodes of a graph run as one call: pytorch/importer/partition.h, against the definition."""

import random

import pytest

from weft import _C


def random_graph(seed: int) -> tuple[list[list[int]], list[bool], list[bool]]:
    rng = random.Random(seed)
    count = rng.randint(0, 40)
    reach = rng.choice([2, 5, 40])
    waits = [
        sorted(rng.sample(range(max(0, i - reach), i), min(i, reach, rng.randint(0, 3)))) if i else []
        for i in range(count)
    ]
    is_call = [rng.random() < 0.15 for _ in range(count)]
    is_member = [call or rng.random() < rng.choice([0.5, 0.9]) for call in is_call]
    return waits, is_member, is_call


def goes_through_a_third(waits: list[list[int]], unit: list[set[int]], start: set[int], goal: set[int]) -> bool:
    """Whether `start` waits for `goal` by way of another unit."""
    stack = [n for node in start for n in waits[node] if n not in start and n not in goal]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen |= unit[node]
        for member in unit[node]:
            if any(n in goal for n in waits[member]):
                return True
            stack += [n for n in waits[member] if n not in start]
    return False


def partition(waits: list[list[int]], is_member: list[bool], is_call: list[bool]) -> list[list[int]]:
    """The same, slow and obvious."""
    unit = [{i} for i in range(len(waits))]

    def merge(a: int, b: int) -> None:
        one, other = unit[a], unit[b]
        if (
            one is other
            or goes_through_a_third(waits, unit, one, other)
            or goes_through_a_third(waits, unit, other, one)
        ):
            return
        merged = one | other
        for node in merged:
            unit[node] = merged

    for node in range(len(waits)):
        if is_member[node]:
            for earlier in waits[node]:
                if is_member[earlier]:
                    merge(earlier, node)
    for source in range(len(waits)):
        readers = [node for node in range(len(waits)) if is_member[node] and source in waits[node]]
        with_calls = [node for node in readers if any(is_call[n] for n in unit[node])]
        for node in readers if with_calls else []:
            merge(with_calls[0], node)
    found = {id(each): sorted(each) for each in unit if len(each) > 1 and any(is_call[n] for n in each)}
    return sorted(found.values())


def has_cycle(waits: list[list[int]], units: list[list[int]]) -> bool:
    """Whether the graph has a cycle once each unit is one node."""
    name = {node: unit[0] for unit in units for node in unit}
    before: dict[int, set[int]] = {name.get(i, i): set() for i in range(len(waits))}
    for i, earlier in enumerate(waits):
        before[name.get(i, i)] |= {name.get(n, n) for n in earlier} - {name.get(i, i)}
    while ready := [unit for unit, left in before.items() if not left]:
        for unit in ready:
            del before[unit]
        for left in before.values():
            left.difference_update(ready)
    return bool(before)


def test_random_graphs() -> None:
    for seed in range(400):
        graph = random_graph(seed)
        units = _C.partition(*graph)
        assert units == partition(*graph), seed
        assert not has_cycle(graph[0], units), seed


def test_a_long_chain_is_one_unit() -> None:
    count = 20_000
    waits = [[i - 1] if i else [] for i in range(count)]
    assert _C.partition(waits, [True] * count, [i == 7 for i in range(count)]) == [list(range(count))]


def test_a_node_between_keeps_two_apart() -> None:
    # 0 -> 1 -> 2 and 0 -> 2, where 1 is no member
    assert _C.partition([[], [0], [0, 1]], [True, False, True], [True, False, False]) == []


def test_readers_of_one_node_go_together() -> None:
    assert _C.partition([[], [0], [0]], [False, True, True], [False, True, False]) == [[1, 2]]


@pytest.mark.parametrize("waits", [[[0]], [[1], []], [[], [-1]]])
def test_an_order_that_is_none(waits: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="in front of it only"):
        _C.partition(waits, [True] * len(waits), [True] * len(waits))


def test_lengths_that_differ() -> None:
    with pytest.raises(ValueError, match="of one length"):
        _C.partition([[], []], [True], [True, True])
