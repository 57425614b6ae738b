"""A transformer is trained on: padded batches of two lengths, a loss that is logged, gradients that are clipped."""

from __future__ import annotations

import logging
import sys

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)


class Classifier(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(60, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        padding = tokens == 0
        hidden = self.encoder(self.embed(tokens), src_key_padding_mask=padding)
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
