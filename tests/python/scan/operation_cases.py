"""Random steps of many operations: written as text, with views, changes in place, and parts without a gradient."""

from __future__ import annotations

import dataclasses
import linecache
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def _parts(text: str) -> list[str]:
    return [part.strip() for line in text.splitlines() for part in line.split(";")]


#: Of one value [B, H]; each is of that shape again.
OF_ONE = _parts("""torch.tanh(A); torch.sigmoid(A); A.sin(); F.relu(A); F.softplus(A); A.abs()
torch.sqrt(A.abs() + 0.1); A * 0.5; A.clamp(-1, 1); F.elu(A); F.gelu(A); A.softmax(-1); A.log_softmax(-1).clamp(min=-3)
F.layer_norm(A, (A.shape[-1],))
A.cumsum(-1) * 0.3; A.flip(-1); A.roll(1, -1); A - A.mean(-1, keepdim=True); A / (1 + A.norm(dim=-1, keepdim=True))
A.detach() * 0.5 + A * 0.1; A.sort(-1).values; torch.where(A > 0, A, A * 0.1); A.t().contiguous().t()
A.amax(-1, keepdim=True).expand_as(A) * 0.5; A.round().detach() + A - A.detach(); A.sign() * 0.3
torch.stack([A, A * 2], 0)[1] * 0.5; torch.cat([A[:, 1:], A[:, :1]], -1); F.pad(A, (1, 0))[:, :-1]
A.pow(2).clamp(max=4); A.exp().clamp(max=3); A.logsumexp(-1, keepdim=True) * torch.ones_like(A) * 0.2; F.mish(A)
F.silu(A); torch.atan(A); A.gather(-1, index); A[:, order]; A.unsqueeze(1).squeeze(1); A.reshape(-1).reshape(A.shape)
torch.nan_to_num(A); A.masked_fill(A < -0.5, 0.25); A.tril(); A.diff(dim=-1, prepend=A[:, :1])
A.std(-1, keepdim=True, correction=0).add(0.1) * A * 0.1; A.unbind(-1)[0].unsqueeze(-1) * 0.1 + A; A.half().float()
A.to(torch.float64).sin().to(torch.float32); A.median(-1, keepdim=True).values + A * 0.5; A.cummax(-1).values
A.scatter(-1, index, A * 0.3); A.index_add(1, order, A * 0.1); F.normalize(A, dim=-1); A.fmod(1.3); A.erf()
A.repeat(1, 2)[:, :A.shape[1]]; F.threshold(A, 0.1, 0.0); F.glu(torch.cat([A, A], -1), -1); A.mean() * 0.1 + A
A.unfold(-1, 1, 1).squeeze(-1); A.select(1, 0).unsqueeze(1).expand_as(A) * 0.5 + A * 0.5; A.logcumsumexp(-1) * 0.2
A.var(0, keepdim=True, correction=0) * 0.1 + A * 0.5; A.argmax(-1, keepdim=True).float() * 0.01 + A
A.prod(-1, keepdim=True).clamp(-1, 1) * 0.3 + A * 0.5; F.one_hot(A.argmax(-1), A.shape[1]).float() * 0.3
F.rms_norm(A, (A.shape[-1],)); A.ne(0).float() * 0.2; A.kthvalue(1, -1, keepdim=True).values * 0.5 + A * 0.3""")
#: Of two.
OF_TWO = _parts("""A + B; A * B; A - 0.5 * B; torch.maximum(A, B); torch.minimum(A, B); torch.where(A > B, A, B * 0.5)
F.linear(A, weight) + B; A @ weight; torch.addmm(B, A, weight, alpha=0.5); A / (B.abs() + 1); torch.lerp(A, B, gate)
torch.atan2(A, B.abs() + 0.5); torch.logaddexp(A, B) * 0.5; torch.einsum("bi,bj->bij", A, B).mean(1)
torch.bmm(A.unsqueeze(2), B.unsqueeze(1)).sum(2) * 0.2; torch.cat([A, B], -1) @ tall; torch.stack([A, B]).amin(0)
F.linear(torch.cat([A, B], -1), tall.t(), bias); (A * B).sum(-1, keepdim=True) * 0.1 + A
torch.addcmul(A, B, B, value=0.1); torch.minimum(A.detach(), B); F.mse_loss(A, B) * 0.1 + A
torch.dist(A, B) * 0.05 + B; torch.dot(A[0], B[0]) * 0.05 + A
torch.outer(A[0], B[0]).sum(0) * 0.1 + A; F.cosine_similarity(A, B, dim=-1).unsqueeze(-1) * 0.2 + B
A.bool().logical_and(B > 0).float() * 0.4 + A * 0.1; torch.hypot(A, B + 2) * 0.3; A.scatter_add(-1, index, B * 0.2)
A.clamp(min=B * 0.5 - 1, max=B.abs() + 0.5); torch.cdist(A, B + 1).mean() * 0.1 + A; F.bilinear(A, B, cube) * 0.2""")
#: Statements that make V, of an expression E and of a value B.
STATEMENTS = """V = (E) * 1; V.mul_(0.9)
V = (E).clone(); V[:, 0] = 0.3
V = (E).clone(); V[:, 0] += B[:, 0]
V = (E) + 0; V[0].tanh_()
V = (E).clone(); V.t()[0] = 1.5
V = (E).clone(); W = V[:, -1:]; W.mul_(B[:, :1])
V = (E).contiguous() * 1; W = V.view(-1); W[:2] *= 0.5; V = V + W.sum() * 0.1
V = (E).clone(); V.masked_fill_(V > 0.5, 0.5)
V = (E).clone(); V.copy_(B * 0.5 + V * 0.5)
V = (E).clone(); V.index_copy_(0, first, B[:1] * 0.7)
V = (E).clone(); V.clamp_(-1, 1).add_(B, alpha=0.2)
V = (E).clone(); V[V.shape[0] - 1:] = F.relu(B[:1])
V = torch.zeros_like(B); V[:, ::2] = B[:, ::2]
V = torch.empty_like(B).copy_(B)
V = B.new_zeros(B.shape) + (E)
V = (E).clone(); V.zero_(); V = V + B
V = (E).detach()
with torch.no_grad(): V = (E)""".splitlines()


@dataclasses.dataclass
class Case:
    """A step over `carries` tensors [rows, units], its inputs and its parameters."""

    seed: int
    text: str
    rows: int
    units: int
    carries: int

    @classmethod
    def of(cls, seed: int) -> Case:
        rng = random.Random(seed)
        carries, names, lines = rng.randint(1, 3), ["x"], []
        names += [f"c{i}" for i in range(carries)]
        for number in range(rng.randint(2, 9)):
            part = rng.choice(OF_ONE if rng.random() < 0.55 else OF_TWO)
            a, b = rng.choice(names), rng.choice(names)
            expression, value = _put(part, A=a, B=b), f"v{number}"
            statement = rng.choice(STATEMENTS) if rng.random() < 0.3 else "V = E"
            lines.append(_put(statement, V=value, W=f"w{number}", E=expression, B=b))
            names.append(value)
        after = [rng.choice(names[1 + carries :]) for _ in range(carries)]
        bounded = [
            f"torch.tanh({a}) + 0.1 * c{i}" if rng.random() < 0.6 else f"{a}.clamp(-2, 2) * 1"
            for i, a in enumerate(after)
        ]
        given = "".join(f"c{i}, " for i in range(carries))
        body = [f"{given}= c", *lines, f"return ({', '.join(bounded)},), ({rng.choice(names)}, {rng.choice(names)})"]
        text = "def step(c, x):\n" + "".join(f"    {line}\n" for line in body)
        return cls(seed, text, rng.choice([1, 2, 3]), rng.choice([1, 2, 3, 5, 8]), carries)

    def results(self, run: Callable[..., Any], length: int, device: str) -> list[Tensor | None]:
        """The last carry, ys, and the gradients of all that requires one, None for what has none."""
        rng, generator = random.Random(self.seed), torch.Generator().manual_seed(self.seed)

        def some(*sizes: int) -> Tensor:
            return (torch.randn(sizes, generator=generator) * 0.6).to(device).requires_grad_(rng.random() < 0.85)

        units, rows = self.units, self.rows
        carry, xs = tuple(some(rows, units) for _ in range(self.carries)), some(length, rows, units)
        parameters = dict(weight=some(units, units), tall=some(2 * units, units), bias=some(units), gate=some(units))
        parameters["cube"] = some(units, units, units)
        order = torch.randperm(units, generator=generator).to(device)
        fixed = dict(
            order=order, index=order.expand(rows, units), first=torch.zeros(1, dtype=torch.int64, device=device)
        )
        names: dict[str, Any] = dict(torch=torch, F=functional, **parameters, **fixed)
        name = f"<random step {self.seed}>"
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(True), name)
        exec(compile(self.text, name, "exec"), names)
        last, ys = run(names["step"], carry, xs)
        outputs = [*last, *ys]
        wanted = [leaf for leaf in (*carry, xs, *parameters.values()) if leaf.requires_grad]
        ways = [torch.randn(output.shape, generator=generator).to(device) for output in outputs]
        read = [(output, way) for output, way in zip(outputs, ways, strict=True) if output.requires_grad]
        gradients: Sequence[Tensor | None] = [None] * len(wanted)
        if read:
            heads, tails = zip(*read, strict=True)
            gradients = torch.autograd.grad(heads, wanted, tails, allow_unused=True)
        return [None if value is None else value.detach().cpu() for value in (*outputs, *gradients)]


def _put(text: str, **names: str) -> str:
    """The text with other names for words of one capital letter, but `F` and those that stay."""
    return re.sub(r"(?<![\w.])[A-Z](?!\w)", lambda found: names.get(found[0], found[0]), text)
