"""The text, and how it is read: streams of equal length, some characters of each at a step."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from .errors import UserError


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
