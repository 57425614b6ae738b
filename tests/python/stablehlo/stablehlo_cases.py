"""Programs that together have every op of the IR, with inputs at the edges of the ops' domains, for
test_stablehlo.py."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

FLOATING = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
INTEGER = {"i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
DTYPES = FLOATING | INTEGER | {"bool": torch.bool}

_INF, _NAN = float("inf"), float("nan")
_EDGES = [_NAN, _INF, -_INF, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 0.01, -3.7, 90.0, -90.0, 300.25]
_PAIRED = ["add", "sub", "mul", "div", "rem", "pow", "atan2", "hypot", "logaddexp", "maximum", "minimum"]
_COMPARED = ["eq", "ne", "lt", "le", "gt", "ge"]
_ANY_ONE = ["copy", "stop_gradient"]
_NUMBER_ONE = ["neg", "abs", "sign", "relu"]
_FLOAT_ONE = [
    *("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "sin", "cos", "erf", "erfc"),
    *("floor", "ceil", "trunc", "round"),
]


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    text: str
    inputs: list[Tensor]


def program(name: str, inputs: dict[str, str], lines: list[str]) -> str:
    """`lines` without results' names: line i defines %ri, and every %ri is returned."""
    arguments = ", ".join(f"%{name}: {type_}" for name, type_ in inputs.items())
    body = [f"  %r{i} = {line}" for i, line in enumerate(lines)]
    results = ", ".join(f"%r{i}" for i in range(len(lines)))
    return "\n".join([f"program @{name}({arguments}) {{", *body, f"  return {results}", "}"])


def values_of(dtype: str) -> Tensor:
    """Numbers at the edges of a dtype."""
    if dtype == "bool":
        return torch.tensor([True, False, True])
    if dtype in FLOATING:
        return torch.tensor(_EDGES, dtype=FLOATING[dtype])
    limits = torch.iinfo(INTEGER[dtype])
    numbers = {limits.min, limits.max, 0, 1, 2, 3, 7, 100} | ({-1, -2, -7, -100} if limits.min < 0 else set())
    return torch.tensor(sorted(numbers), dtype=INTEGER[dtype])


def elementwise() -> Iterator[Case]:
    """All elementwise ops on all dtypes: every value and every pair of values, one value and none."""
    for dtype in DTYPES:
        one = [*_ANY_ONE, *(_NUMBER_ONE if dtype != "bool" else []), *(_FLOAT_ONE if dtype in FLOATING else ["not"])]
        two = [*(_PAIRED if dtype in FLOATING else []), *_COMPARED]
        if dtype in INTEGER:
            two += ["add", "sub", "mul", "div", "rem", "maximum", "minimum"]
        if dtype not in FLOATING:
            two += ["and", "or"]
        lines = [f"{op} %a" for op in one] + [f"{op} %a, %b" for op in two] + ["select %c, %a, %b"]
        lines += [f"cast %a : {other}[N]" for other in DTYPES]
        text = program(f"elementwise_{dtype}", {"c": "bool[N]", "a": f"{dtype}[N]", "b": f"{dtype}[N]"}, lines)
        edges = values_of(dtype)
        pairs = [(i, j) for i, j in itertools.product(edges.tolist(), repeat=2) if dtype not in INTEGER or j != 0]
        for count in (len(pairs), 1, 0) if dtype in ("f32", "i32") else (len(pairs),):
            a, b = (torch.tensor([pair[k] for pair in pairs[:count]], dtype=DTYPES[dtype]) for k in (0, 1))
            yield Case(f"elementwise {dtype} {count}", text, [torch.arange(count) % 2 == 0, a, b])


def casts_of_large_numbers() -> Iterator[Case]:
    """At the ends of integers, where a cast saturates."""
    for dtype in ("f32", "f64"):
        ends = [end for bits in (8, 16, 32, 64) for end in (2.0 ** (bits - 1), 2.0**bits)]
        numbers = torch.tensor([_NAN, _INF, *ends, *(end - 1 for end in ends)], dtype=FLOATING[dtype])
        both = torch.cat([numbers, -numbers, numbers - 0.5])
        yield Case(
            f"casts {dtype}",
            program(f"casts_{dtype}", {"a": f"{dtype}[N]"}, [f"cast %a : {to}[N]" for to in [*INTEGER, "bool"]]),
            [both],
        )


def sources() -> Iterator[Case]:
    for dtype in DTYPES:
        numbers = (
            ["true", "false"] if dtype == "bool"
            else ["0.1", "-2.5", "inf", "-inf", "nan", "1e-7", "30000.0"] if dtype in FLOATING
            else [str(min(values_of(dtype).max().item(), 2**53)), "0", "3"]
        )  # fmt: skip
        lines = [f"constant {{value = {value}}} : {dtype}[{shape}]" for value in numbers for shape in ("", "2,3", "0")]
        if dtype != "bool":
            lines += [f"iota {{dim = {dim}}} : {dtype}[T,B]" for dim in (0, 1)]
            lines += [f"size {{of = dim({of})}} : {dtype}[]" for of in ("T", "T*B", "(T+1)//2")]
        text = program(f"sources_{dtype}", {"x": "f32[T,B]"}, lines)
        for sizes in ((7, 3), (1, 1), (0, 2)):
            yield Case(f"sources {dtype} {sizes}", text, [torch.zeros(sizes)])


def _filled(dtype: str, *sizes: int) -> Tensor:
    if dtype == "bool":
        return torch.randint(2, sizes).bool()
    return torch.randn(sizes).to(DTYPES[dtype]) if dtype in FLOATING else torch.randint(0, 9, sizes).to(DTYPES[dtype])


def movement() -> Iterator[Case]:
    """Movement that needs no index, on all dtypes."""
    lines = lambda t: [  # noqa: E731
        f"broadcast %v {{dims = [1]}} : {t}[T,B,2]",
        f"broadcast %x {{dims = [0, 2]}} : {t}[T,3,B]",
        f"broadcast %s {{dims = []}} : {t}[B]",
        f"reshape %x : {t}[B*T]",
        f"reshape %s : {t}[1,1]",
        "transpose %x {perm = [1, 0]}",
        "transpose %y {perm = [2, 0, 1]}",
        "slice %y {dim = 2, start = 1, limit = 3}",
        "slice %x {dim = 0, start = 0, limit = dim(T//2)}",
        "pad %x {dim = 0, low = 2, high = 0}",
        "pad %y {dim = 1, low = dim(T), high = 1}",
        "concat %x, %x {dim = 0}",
        "concat %y {dim = 2}",
        "reverse %x {dim = 0}",
        "reverse %y {dim = 2}",
    ]
    for dtype in DTYPES:
        inputs = {"s": f"{dtype}[]", "v": f"{dtype}[B]", "x": f"{dtype}[T,B]", "y": f"{dtype}[T,B,5]"}
        text = program(f"movement_{dtype}", inputs, lines(dtype))
        for t, b in ((7, 3), (1, 1), (0, 2), (2, 0)) if dtype in ("f32", "bool") else ((3, 1),):
            yield Case(f"movement {dtype} {t} {b}", text, [_filled(dtype, *s) for s in ((), (b,), (t, b), (t, b, 5))])


def indexed() -> Iterator[Case]:
    """Rows by index: repeated ones, and none."""
    for dtype, index in (
        ("f32", "i64"),
        ("bf16", "i32"),
        ("i64", "u8"),
        ("f16", "i8"),
        ("bool", "i16"),
        ("f64", "i64"),
    ):
        inputs = {"t": f"{dtype}[V,W]", "v": f"{dtype}[V]", "i": f"{index}[N]", "j": f"{index}[N,2]", "at": "i64[]",
                  "u": f"{dtype}[N,W]", "w": f"{dtype}[N,2]", "few": f"{dtype}[2,W]"}  # fmt: skip
        lines = [
            *("gather %t, %i", "gather %t, %j", "gather %v, %j"),
            *("scatter %t, %i, %u", "scatter %v, %j, %w"),
            "dynamic_slice %t, %at {dim = 0, size = 2}",
            f"dynamic_slice %t, %at {{dim = 0, size = dim(V-2)}} : {dtype}[V-2,W]",
            "dynamic_slice %v, %at {dim = 0, size = 0}",
            "dynamic_update %t, %few, %at {dim = 0}",
        ]
        if dtype != "bool":
            lines += [f"scatter_add %i, %u : {dtype}[V,W]", f"scatter_add %j, %w : {dtype}[5]"]
        text = program(f"indexed_{dtype}", inputs, lines)
        for count, width in ((9, 3), (1, 1), (0, 2), (4, 0)):
            sizes = {"t": (5, width), "v": (5,), "u": (count, width), "w": (count, 2), "few": (2, width)}
            given = {name: _filled(dtype, *size) for name, size in sizes.items()}
            given |= {name: torch.randint(5, size).to(INTEGER[index]) for name, size in
                      (("i", (count,)), ("j", (count, 2)))}  # fmt: skip
            given["at"] = torch.tensor(2)
            yield Case(f"indexed {dtype} {count} {width}", text, [given[name] for name in inputs])
    text = program("no_rows", {"t": "f32[V,3]", "i": "i64[N]", "u": "f32[N,3]"},
                   ["gather %t, %i", "scatter %t, %i, %u", "scatter_add %i, %u : f32[V,3]"])  # fmt: skip
    yield Case("no rows", text, [torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), torch.zeros(0, 3)])


def sums() -> Iterator[Case]:
    """Reductions and products, over nothing and one element too."""
    for dtype in (*FLOATING, *INTEGER):
        inputs = {"x": f"{dtype}[T,B,5]", "y": f"{dtype}[T,B,5]", "w": f"{dtype}[5,3]", "v": f"{dtype}[B]"}
        lines = [f"{op} %x {{dims = {dims}}}" for op in ("reduce_sum", "reduce_max") for dims in
                 ("[0]", "[2]", "[0, 2]", "[0, 1, 2]")]  # fmt: skip
        lines += [
            *("matmul %x, %w", "outer %x, %y", "outer %v, %v", "transpose %w {perm = [1, 0]}"),
            f"matmul %x, %r{len(lines) + 3} {{transpose_b = true}}",
            "batch_matmul %x, %y {transpose_b = true}",
            "batch_matmul %x, %y {transpose_a = true}",
            f"batch_matmul %x, %r{len(lines) + 6}",
            "batch_matmul %w, %w {transpose_a = true}",
        ]
        text = program(f"sums_{dtype}", inputs, lines)
        for t, b in ((7, 3), (1, 1), (0, 2), (2, 0)) if dtype in ("f32", "i64") else ((3, 2),):
            shapes = ((t, b, 5), (t, b, 5), (5, 3), (b,))
            yield Case(f"sums {dtype} {t} {b}", text, [_filled(dtype, *shape) for shape in shapes])
    nan = torch.tensor([[1.0, _NAN, 2.0], [-_INF, -_INF, -_INF]])
    yield Case("largest", program("largest", {"x": "f32[N,3]"}, ["reduce_max %x {dims = [1]}"]), [nan])


def packed() -> Iterator[Case]:
    for dtype, groups, n, depth, interleave in (
        *(("f32", 3, 7, 5, 1), ("f64", 1, 16, 1, 1), ("bf16", 2, 3, 5, 2), ("f16", 1, 1, 3, 2), ("f32", 2, 33, 0, 1)),
    ):
        options = f"groups = {groups}, interleave = {interleave}"
        lines = [
            f"pack %w {{{options}, width = 16}}",
            f"transpose %w {{perm = [1, 0]}} : {dtype}[{groups * n},{depth}]",
            f"pack %r1 {{{options}, width = 16, transpose_b = true}}",
            f"matmul_packed %a, %r0 {{{options}, n = {groups * n}}}",
        ]
        inputs = {"a": f"{dtype}[B,{depth}]", "w": f"{dtype}[{depth},{groups * n}]"}
        given = [_filled(dtype, 3, depth), _filled(dtype, depth, groups * n)]
        yield Case(f"packed {dtype}", program(f"packed_{dtype}", inputs, lines), given)


def rows_of_bytes() -> Iterator[Case]:
    """Products by weights of 8 bits; products of integers wrap."""
    torch.manual_seed(5)
    weights = torch.randint(-128, 128, (12, 5), dtype=torch.int8)
    for dtype, a in (("f32", torch.randn(2, 3, 5)), ("i32", torch.randint(-(2**30), 2**30, (2, 3, 5)).int())):
        lines = ["matmul_rows %a, %w {groups = 3, width = 4}"]
        inputs = {"a": f"{dtype}[2,B,5]", "w": "i8[12,5]"}
        yield Case(f"rows of bytes {dtype}", program(f"rows_{dtype}", inputs, lines), [a, weights])


_CONTROL = """program @control(%p: bool[], %x: f32[T,B], %n: i64[]) {
  %zero = constant {value = 0.0} : f32[B]
  %hT, %hs = scan length T carry(%h = %zero) xs(%xt = %x) {
    %a = cond %p then {
      %s = add %h, %xt
      yield %s
    } else {
      %m = maximum %h, %xt
      %k, %v = while carry(%i = %n, %w = %m) {
        %none = constant {value = 0} : i64[]
        %more = gt %i, %none
        yield %more
      } do(%i, %w) {
        %one = constant {value = 1} : i64[]
        %j = sub %i, %one
        %t = mul %w, %xt
        yield %j, %t
      } : i64[], f32[B]
      yield %v
    } : f32[B]
    yield carry(%a) ys(%h)
  } : f32[B], f32[T,B]
  %back, %other, %left, %swapped = scan reverse length T carry(%h = %hT, %g = %zero) xs(%xt = %x, %ht = %hs) {
    %s = sub %h, %xt
    %u = mul %s, %ht
    yield carry(%g, %h) ys(%u, %g)
  } : f32[B], f32[B], f32[T,B], f32[T,B]
  %same = custom_vjp %x, %hs {inputs = 1, vjp = "program @d(%x: f32[T,B], %y: f32[T,B], %dy: f32[T,B]) { return %dy }"}
  return %hT, %hs, %back, %other, %left, %swapped, %same, %x
}"""


def control() -> Iterator[Case]:
    """Loops and branches in one another, a carry yielded as another, no steps and no rounds."""
    for yes, t, b, rounds in ((True, 5, 3, 2), (False, 4, 1, 3), (False, 3, 2, 0), (True, 0, 2, 1), (False, 1, 0, 1)):
        inputs = [torch.tensor(yes), torch.randn(t, b), torch.tensor(rounds)]
        yield Case(f"control {yes} {t} {b} {rounds}", _CONTROL, inputs)


_RAGGED = """program @ragged(%x: f32[N,4], %scale: f32[T], %sizes: i64[T], %h0: f32[B,4], %w: f32[4,4], %id: i64[B]) {{
  %none = constant {{value = 0.0}} : f32[4]
  %square = constant {{value = 0.0}} : f32[4,4]
  %hT, %sum, %dw, %ys, %most = scan {reverse}length T ragged(%sizes, B, N)
      carry(%h = %h0, %s = %none, %g = %square) xs(%xt = %x, %by = %scale) {{
    %z = matmul %h, %w : f32[B,4]
    %f = broadcast %by {{dims = []}} : f32[B,4]
    %m = mul %z, %f
    %q = add %m, %xt
    %n = tanh %q : f32[B,4]
    %rows = reduce_sum %n {{dims = [0]}} : f32[4]
    %all = add %s, %rows
    %largest = reduce_max %xt {{dims = [0]}} : f32[4]
    %product = outer %n, %xt : f32[4,4]
    %total = add %g, %product
    %named = scatter_add %id, %n : f32[4,4]
    %last = scatter %total, %id, %n : f32[4,4]
    %both = add %named, %last
    yield carry(%n, %all, %both) ys(%n, %largest)
  }} : f32[B,4], f32[4], f32[4,4], f32[N,4], f32[T,4]
  return %hT, %sum, %dw, %ys, %most
}}"""


def ragged() -> Iterator[Case]:
    """Sequences of unequal length, in steps that sum over rows and write rows by index."""
    for reverse in ("", "reverse "):
        for sizes in ([5, 3, 3, 1], [2, 2, 2], [1], [4, 1, 1, 1, 1]):
            b, n, t = sizes[0], sum(sizes), len(sizes)
            inputs = [torch.randn(n, 4), torch.rand(t), torch.tensor(sizes), torch.randn(b, 4), torch.randn(4, 4)]
            text = _RAGGED.format(reverse=reverse)
            yield Case(f"ragged {reverse}{sizes}", text, [*inputs, torch.randint(4, (b,))])


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    function.__name__: function
    for function in (
        *(elementwise, casts_of_large_numbers, sources, movement, indexed, sums, packed, rows_of_bytes, control),
        ragged,
    )
}
