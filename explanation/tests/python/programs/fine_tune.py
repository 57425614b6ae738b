"""A transformer is trained on: padded batches of two lengths, a loss that is logged, gradients that are clipped."""

from __future__ import annotations

import logging
import sys

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)


class Block(nn.Module):
    """Attention and a feed-forward net, by hand: Dynamo takes a third of the time that nn.TransformerEncoder takes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.wide, self.narrow = nn.LayerNorm(width), nn.Linear(width, 64), nn.Linear(64, width)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(1, 2)) * x.shape[-1] ** -0.5
        x = self.norm(x + self.out(scores.masked_fill(padding[:, None], -1e9).softmax(-1) @ v))
        return x + nn.functional.dropout(self.narrow(torch.relu(self.wide(x))), 0.1, self.training)


class Classifier(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, width, padding_idx=0)
        self.encoder = Block(width)
        self.head = nn.Linear(width, 3)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        padding = tokens == 0
        hidden = self.encoder(self.embed(tokens), padding)
        kept = (~padding).unsqueeze(-1)
        pooled = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1)
        loss = nn.functional.cross_entropy(self.head(pooled), labels)
        log.warning("loss %s", loss)
        if loss > 4:
            loss = loss * 0.5
        return loss


def main() -> None:
    log.disabled = True
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    compiled = torch.compile(model, backend=sys.argv[1])
    for length in (16, 12):
        tokens = torch.randint(1, 60, (4, length))
        tokens[0, length // 2 :] = 0
        compiled(tokens, torch.randint(0, 3, (4,))).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
