"""Tags the words of sentences of different lengths: a bidirectional LSTM over packed sequences.

The sentences are made up: a word is tagged by what kind it is and by whether a word of the same kind came before it and
comes after it, so that both directions are needed. Plain PyTorch; `weft run examples/tagger.py` runs it on Weft.
"""

import argparse
import sys
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORDS, KINDS, PADDING = 60, 5, -100


def sentence() -> tuple[torch.Tensor, torch.Tensor]:
    """Words and their tags, 3 to 15 of them."""
    words = torch.randint(WORDS, (int(torch.randint(3, 16, ())),))
    kinds = words % KINDS
    same = kinds[:, None] == kinds[None, :]
    before, after = same.tril(-1).any(1), same.triu(1).any(1)
    return words, kinds * 4 + before * 2 + after


class Tagger(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.tags = nn.Linear(2 * width, 4 * KINDS)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        scores: torch.Tensor = self.tags(states)
        return scores


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Words and tags, [size, longest], and the lengths."""
    sentences = [sentence() for _ in range(size)]
    words = pad_sequence([words for words, _ in sentences], batch_first=True)
    tags = pad_sequence([tags for _, tags in sentences], batch_first=True, padding_value=PADDING)
    return words, tags, torch.tensor([len(words) for words, _ in sentences])


@torch.no_grad()
def accuracy(model: Tagger) -> float:
    """The fraction of words that are tagged correctly, in sentences that weren't trained on."""
    words, tags, lengths = batch(200)
    found = model.eval()(words, lengths).argmax(2)
    share: float = (found == tags)[tags != PADDING].float().mean().item()
    return share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=24)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Tagger(options.width)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for step in range(options.steps):
        words, tags, lengths = batch(16)
        scores = model(words, lengths)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=PADDING)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        print(f"step {step} loss {loss.item():.8f}")
        if step == 0:
            begin = time.perf_counter()  # what is done once is not counted
    seconds, how = time.perf_counter() - begin, "with" if "weft" in sys.modules else "without"
    print(f"accuracy {accuracy(model):.3f} on new sentences, {(options.steps - 1) / seconds:.1f} steps/s {how} Weft")


if __name__ == "__main__":
    main()
