"""Trains a recurrent tagger in several processes: data parallel (DDP), or with parameters split (FSDP).

    torchrun --standalone --nproc-per-node 2 examples/data_parallel.py
    torchrun --standalone --nproc-per-node 2 examples/data_parallel.py --wrap fsdp

Plain PyTorch but for `import weft`; `weft run -m torch.distributed.run ...` needs not even that. Each process takes its
rows of every batch, so any number of processes that divides 32 gives the same losses but for rounding.
"""

import argparse
import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import weft

ROWS, STEPS, WIDTH = 32, 24, 48


class Tagger(nn.Module):
    """Predicts at each step whether the number of ones so far is odd."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(1, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, bits: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.rnn(bits)[0])
        return scores


def wrapped(model: Tagger, wrap: str) -> nn.Module:
    """The model as the processes train it together; unchanged if there is only one process."""
    if wrap == "ddp":
        return DistributedDataParallel(model)
    if wrap == "fsdp":
        fully_shard(model)
    return model


def train(wrap: str, steps: int, rank: int, processes: int) -> list[float]:
    """The mean loss of each step over all rows of the batch."""
    torch.manual_seed(0)  # the same parameters and batches everywhere
    model = wrapped(Tagger(), wrap)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(steps):
        bits = torch.randint(2, (ROWS, STEPS, 1))
        mine = bits.tensor_split(processes)[rank]
        scores, target = model(mine.float()), mine.cumsum(1).remainder(2)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        mean = loss.detach()
        if processes > 1:
            dist.all_reduce(mean)
        losses.append(mean.item() / processes)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrap", choices=["ddp", "fsdp"], nargs="+", default=["ddp"])
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    # The processes of one machine share its cores.
    local = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // local))
    for wrap in options.wrap:
        losses = train(wrap, options.steps, rank, processes)
        if rank == 0:
            print(f"{wrap}, {processes} processes: loss {losses[0]:.6f} at first, {losses[-1]:.6f} at last")
    if rank == 0:
        counted = weft.stats()
        print(f"programs of weft: {counted['compiled']}, left to PyTorch: {counted['fallbacks']}")
    # Models that are garbage still hold the group. Its threads end with it; a thread that frees the group's last tensor
    # while Python ends aborts the process.
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
