"""`weft.load`: a package's shared library in Python, by ctypes."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from weft import _C
from weft._base import trees
from weft._packages.library_file import fault_of

WHAT = "weft.load"
ABI = 1
#: PyTorch's dtypes by their numbers in weft_model.h.
_DTYPES = {
    0: torch.bool,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.bfloat16,
    8: torch.float32,
    9: torch.float64,
}
_STATUS = {
    1: "it was given a null pointer",
    2: "the state is not one of this model",
    3: "an index is outside its table, or an integer is divided by 0; the state is as it was before",
}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_uint32),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
    )


_Pointers = ctypes.POINTER(ctypes.c_void_p)


class _Model(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("input_count", ctypes.c_uint32),
        ("output_count", ctypes.c_uint32),
        ("state_count", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("target", ctypes.c_char_p),
        ("fingerprint", ctypes.c_uint64),
        ("inputs", ctypes.POINTER(_Tensor)),
        ("outputs", ctypes.POINTER(_Tensor)),
        ("states", ctypes.POINTER(_Tensor)),
        ("state_bytes", ctypes.c_size_t),
        ("state_align", ctypes.c_size_t),
        ("saved_bytes", ctypes.c_size_t),
        ("reset", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)),
        ("step", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _Pointers, _Pointers)),
        ("run", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _Pointers, _Pointers, ctypes.c_size_t)),
        ("save", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
        ("restore", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
    )


@dataclasses.dataclass(frozen=True)
class Described:
    """A tensor of a model."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {str(self.dtype).removeprefix('torch.')}[{','.join(map(str, self.shape))}]"

    def check(self, given: object, lead: tuple[int, ...] = ()) -> Tensor:
        """The tensor in the form that the model reads: dense, in memory, a complex one as pairs [..., 2].

        Raises:
            TypeError, ValueError: it has another dtype or shape, or is no tensor.
        """
        shape = (*lead, *self.shape)
        if not isinstance(given, Tensor):
            raise TypeError(f"{WHAT}: {self.name} must be a tensor, but got {type(given).__name__}")
        if given.is_complex() and not self.dtype.is_complex:
            given = torch.view_as_real(given.resolve_conj())
        if given.dtype != self.dtype or tuple(given.shape) != shape:
            wanted = dataclasses.replace(self, shape=shape)
            raise ValueError(f"{WHAT}: the model takes {wanted}, but got {trees.describe(given)}")
        return given.detach().to("cpu").contiguous()


def load(library: str | Path, name: str | None = None) -> Model:
    """The model in a package's shared library, with a state of its own::

        model = weft.load("amp/libamp.so")
        y = model.step(x)    # one step
        ys = model.run(xs)   # as many as the stack has

    It is code, and as trusted as any shared library. `name` is the package's, where it isn't the file's.

    Raises:
        OSError: the file can't be loaded: it isn't there, is no library or not a whole one, or is for another machine.
        RuntimeError: it is no package, one of another ABI, or one for instructions that this processor lacks.
    """
    path = Path(library)
    prefix = path.name.removeprefix("lib").split(".")[0] if name is None else name
    loaded = _loaded(path)
    try:
        function = getattr(loaded, f"{prefix}_model")
    except AttributeError:
        raise RuntimeError(f"{WHAT}: {path} has no function {prefix}_model: it is no package of that name") from None
    function.restype, function.argtypes = ctypes.POINTER(_Model), ()
    found = function()
    if not found:
        raise RuntimeError(f"{WHAT}: {path} has a function {prefix}_model that gives nothing: it is no package")
    model = found.contents
    if model.abi != ABI:
        raise RuntimeError(f"{WHAT}: {path} is of ABI {model.abi}, and this Weft knows {ABI}: package the model again")
    if _is_beyond(target := model.target.decode()):
        host = _C.package_host()
        raise RuntimeError(
            f"{WHAT}: {path} is for {target}, and this processor has no more than {host}: name {host} among the "
            "targets when packaging, of which the library chooses at run time"
        )
    return Model(loaded, model)


def _is_beyond(target: str) -> bool:
    """Whether the target is of this machine's architecture, and needs instructions that this processor lacks."""
    known = dict(_C.package_targets())
    return known.get(target) == known[_C.package_host()] and not _C.package_runs(target)


def _loaded(path: Path) -> ctypes.CDLL:
    """The library with its present contents. For a path that was loaded before, the loader returns the old contents. So
    the file gets a path of its own, which may be deleted once it is loaded."""
    if not path.exists():
        try:
            return ctypes.CDLL(str(path))  # the loader looks for it, and says where
        except OSError as error:
            raise OSError(f"{WHAT}: {error}") from None
    if not path.is_file():
        raise OSError(f"{WHAT}: {path}: it is no file, but a package's library is: lib{path.name}.so in its folder")
    data = path.read_bytes()
    if sys.platform == "linux" and (fault := fault_of(data)) is not None:
        raise OSError(f"{WHAT}: {path}: {fault}")
    with tempfile.NamedTemporaryFile(prefix="weft_", suffix=".so") as copy:
        copy.write(data)
        copy.flush()
        try:
            return ctypes.CDLL(copy.name)
        except OSError as error:
            raise OSError(f"{WHAT}: {str(error).replace(copy.name, str(path))}") from None


class Model:
    """A packaged model with a state."""

    def __init__(self, library: ctypes.CDLL, model: _Model) -> None:
        self._library, self._model = library, model  # the one keeps what the other points to
        self.name, self.target = model.name.decode(), model.target.decode()
        self.fingerprint: int = model.fingerprint
        self.inputs, self.outputs, self.states = (
            _described(tensors, count)
            for tensors, count in (
                (model.inputs, model.input_count),
                (model.outputs, model.output_count),
                (model.states, model.state_count),
            )
        )
        self._memory = ctypes.create_string_buffer(model.state_bytes + model.state_align)
        start = ctypes.addressof(self._memory)
        self._state = ctypes.c_void_p(start + -start % model.state_align)
        self.reset()

    def reset(self) -> None:
        """Returns to the state before the first step."""
        self._check(self._model.reset(self._state))

    def step(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """One step: an output, or a tuple of several.

        Raises:
            TypeError, ValueError: inputs that the model doesn't take.
            RuntimeError: the step failed.
        """
        return self._call((), inputs, lambda given, made: self._model.step(self._state, given, made))

    def run(self, *inputs: Tensor, steps: int | None = None) -> Tensor | tuple[Tensor, ...]:
        """Runs steps over stacks [T, ...], each as step() does. For a model without inputs, `steps` is T. Raises the
        errors of step()."""
        total = steps if steps is not None else int(inputs[0].shape[0]) if inputs and inputs[0].dim() else None
        if total is None or total < 0:
            raise ValueError(f"{WHAT}: steps must say how many steps to take, since no input does")
        return self._call((total,), inputs, lambda given, made: self._model.run(self._state, given, made, total))

    def save(self) -> bytes:
        """The state, for restore() of any package of this model."""
        saved = ctypes.create_string_buffer(self._model.saved_bytes)
        self._check(self._model.save(self._state, saved))
        return saved.raw

    def restore(self, saved: bytes | bytearray | memoryview) -> None:
        """Continues from a state that save() returned.

        Raises:
            TypeError: `saved` isn't bytes.
            RuntimeError: it is a state of another model; the present state is kept.
        """
        if not isinstance(saved, bytes | bytearray | memoryview):
            raise TypeError(f"{WHAT}: a saved state is bytes, as save() gives them, but got {type(saved).__name__}")
        saved = bytes(saved)
        self._check(self._model.restore(self._state, saved, len(saved)))

    @property
    def state(self) -> dict[str, Tensor]:
        """A copy of the state's tensors, by name."""
        saved, found, first = self.save(), {}, 8
        for each in self.states:
            count = torch.Size(each.shape).numel()
            size = count * each.dtype.itemsize
            flat = torch.frombuffer(bytearray(saved[first : first + size] or b"0"), dtype=torch.uint8)[:size]
            found[each.name] = flat.view(each.dtype).reshape(each.shape)
            first += -(-size // 8) * 8
        return found

    def _call(self, lead: tuple[int, ...], inputs: Sequence[Tensor], call: object) -> Tensor | tuple[Tensor, ...]:
        if len(inputs) != len(self.inputs):
            wanted = ", ".join(map(str, self.inputs)) or "none"
            raise TypeError(f"{WHAT}: the model takes {len(self.inputs)} inputs ({wanted}), but got {len(inputs)}")
        given = [each.check(tensor, lead) for each, tensor in zip(self.inputs, inputs, strict=True)]
        made = [torch.empty((*lead, *each.shape), dtype=each.dtype) for each in self.outputs]
        self._check(call(_pointers(given), _pointers(made)))  # type: ignore[operator]
        return made[0] if len(made) == 1 else tuple(made)

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"{WHAT}: {self.name}: {_STATUS.get(status, f'status {status}')}")

    def __repr__(self) -> str:
        return (
            f"<weft model {self.name} on {self.target}: {', '.join(map(str, self.inputs))} -> "
            f"{', '.join(map(str, self.outputs))}>"
        )


def _described(tensors: ctypes.Array[_Tensor], count: int) -> list[Described]:
    found = []
    for i in range(count):
        each = tensors[i]
        found.append(Described(each.name.decode(), _DTYPES[each.dtype], tuple(each.sizes[: each.rank])))
    return found


def _pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(len(tensors), 1))(*[tensor.data_ptr() for tensor in tensors])
