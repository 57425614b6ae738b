"""Programs that know nothing of Weft: they do the same to recurrent modules with Weft imported.

Each program builds a module, does something to it that PyTorch allows, and returns tensors. It runs twice from the same
seed, on PyTorch and on Weft, and the tensors are compared; nothing may fall back that could run on the engine.
"""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rnn_cases import primitive_is_missing
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import weft

Program = Callable[["Kind"], Any]


class Kind:
    """One kind of module, as the programs below make and call it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_step = name.endswith("Cell")

    def module(self, input_size: int = 5, **options: Any) -> nn.Module:
        if not self.is_step:
            options = {"num_layers": 2, "bidirectional": True, **options}
        return getattr(nn, self.name)(input_size, 6, **options)

    def input(self, steps: int = 7) -> Tensor:
        return torch.randn(3, 5) if self.is_step else torch.randn(steps, 3, 5)

    def weight(self, which: str) -> str:
        """The module's name for the `weight_hh` of its first layer."""
        return which if self.is_step else f"{which}_l0"


KINDS = [Kind(name) for name in ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell")]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


def first(outputs: Any) -> Tensor:
    return tree_leaves(outputs)[0]


def trained(module: nn.Module, run: Callable[[], Any], steps: int = 2) -> list[Tensor]:
    """The gradients of the first step, and the parameters after some."""
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    gradients: list[Tensor] = []
    for _ in range(steps):
        optimiser.zero_grad()
        sum(out.pow(2).sum() for out in tree_leaves(run())).backward()
        gradients = gradients or [parameter.grad.clone() for parameter in module.parameters()]
        optimiser.step()
    return [*gradients, *module.parameters()]


@program
def a_training_loop(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    return trained(module, lambda: module(x), 4)


@program
def forward_hooks(kind: Kind) -> Any:
    module, seen = kind.module(), []
    module.register_forward_pre_hook(lambda module, args: (args[0] * 2, *args[1:]))
    module.register_forward_hook(lambda module, args, outputs: seen.append([args[0], *tree_leaves(outputs)]))
    module.register_forward_hook(lambda module, args, kwargs, outputs: first(outputs) + 1, with_kwargs=True)
    y = module(kind.input())
    y.sum().backward()
    return y, seen, [parameter.grad for parameter in module.parameters()]


@program
def backward_hooks(kind: Kind) -> Any:
    module, seen, x = kind.module(), [], kind.input().requires_grad_()
    module.register_full_backward_pre_hook(lambda module, given: tuple(g if g is None else g * 3 for g in given))
    module.register_full_backward_hook(lambda module, inner, outer: seen.extend([*inner, *outer]))
    next(iter(module.parameters())).register_hook(lambda gradient: gradient * 5)
    next(iter(module.parameters())).register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    outputs = module(x)
    first(outputs).register_hook(lambda gradient: gradient * 7)
    first(outputs).sum().backward()
    return x.grad, [s for s in seen if s is not None], [parameter.grad for parameter in module.parameters()]


@program
def weight_norm(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    parametrizations.weight_norm(module, kind.weight("weight_hh"))
    parametrizations.weight_norm(module, kind.weight("weight_ih"), dim=1)
    results = trained(module, lambda: module(x))
    parametrize.remove_parametrizations(module, kind.weight("weight_hh"))
    return results, module(x)


@program
def weight_norm_as_it_was(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.nn.utils.weight_norm(module, kind.weight("weight_hh"))
        results = trained(module, lambda: module(x))
        torch.nn.utils.remove_weight_norm(module, kind.weight("weight_hh"))
    return results, module(x)


@program
def spectral_norm(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    parametrizations.spectral_norm(module, kind.weight("weight_hh"))
    results = trained(module, lambda: module(x))
    return results, module.eval()(x)


@program
def orthogonal(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    parametrizations.orthogonal(module, kind.weight("weight_hh"))
    return trained(module, lambda: module(x))


@program
def pruning(kind: Kind) -> Any:
    module, x, name = kind.module(), kind.input(), kind.weight("weight_ih")
    prune.l1_unstructured(module, name, amount=0.4)
    prune.random_structured(module, kind.weight("weight_hh"), amount=0.3, dim=0)
    results = trained(module, lambda: module(x))
    assert (getattr(module, name) == 0).float().mean() > 0.3
    prune.remove(module, name)
    return results, module(x)


@program
def copies(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    first(module(x)).sum().backward()
    copied, pickled = copy.deepcopy(module), pickle.loads(pickle.dumps(module))
    with torch.no_grad():
        next(iter(module.parameters())).fill_(0.5)
    return module(x), copied(x), pickled(x), trained(copied, lambda: copied(x)), trained(pickled, lambda: pickled(x))


@program
def state_dict(kind: Kind) -> Any:
    module, other, x = kind.module(), kind.module(), kind.input()
    module(x)
    assert list(module.state_dict()) == [name for name, _ in module.named_parameters()]
    assert not other.load_state_dict(module.state_dict(), strict=True).unexpected_keys
    with contextlib.suppress(RuntimeError):  # a wrong one is refused
        wrong = dict(module.state_dict())
        wrong.popitem()
        other.load_state_dict(wrong, strict=True)
        raise AssertionError
    return module(x), other(x), list(other.state_dict().values())


@program
def saved_and_loaded(kind: Kind) -> Any:
    module, other, x, file = kind.module(), kind.module(), kind.input(), io.BytesIO()
    module(x)
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assigned = kind.module(device="meta")
    assigned.load_state_dict(module.state_dict(), assign=True)
    return module(x), other(x), assigned(x)


@program
def functional_call(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    given = {name: (parameter * 2).detach().requires_grad_() for name, parameter in module.named_parameters()}
    y = torch.func.functional_call(module, given, (x,))
    return y, torch.autograd.grad(first(y).sum(), list(given.values()))


@program
def functional_gradients(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    parameters = dict(module.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return first(torch.func.functional_call(module, parameters, (x,))).pow(2).sum()

    gradients, value = torch.func.grad_and_value(loss)(parameters, x)
    _, pull = torch.func.vjp(loss, parameters, x)
    return list(gradients.values()), value, tree_leaves(pull(torch.ones(())))


@program
def checkpointing(kind: Kind) -> Any:
    module, x = kind.module(), kind.input().requires_grad_()
    results = []
    for reentrant in (False, True):
        y = first(checkpoint(lambda x: module(x * 2), x, use_reentrant=reentrant))
        y.sum().backward()
        results.append(y)
    return results, [parameter.grad for parameter in module.parameters()], x.grad


@program
def optimisers(kind: Kind) -> Any:
    """The optimisers' steps change the weights in place, all at once (foreach) or in one kernel (fused).

    In float64, since four steps of some optimisers amplify a last bit.
    """
    results = []
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True),
        lambda p: torch.optim.SGD(p, lr=0.05, fused=True),
        lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
        lambda p: torch.optim.RMSprop(p, lr=1e-2, foreach=True),
    ):
        module, x = kind.module().double(), kind.input().double()
        optimiser = make(module.parameters())
        for _ in range(4):
            optimiser.zero_grad()
            first(module(x)).pow(2).sum().backward()
            optimiser.step()
        results += [*module.parameters(), *tree_leaves(module(x))]
    return results


@program
def weights_changed_by_hand(kind: Kind) -> Any:
    module, x, results = kind.module(), kind.input(), []
    weight = getattr(module, kind.weight("weight_hh"))
    with torch.no_grad():
        results.append(module(x))
        weight.mul_(0.5)
        results.append(module(x))
        weight.data = weight.data + 1
        results.append(module(x))
        weight.data.numpy()[:] = 0.25  # no version counter sees this
        results.append(module(x))
        nn.init.orthogonal_(weight)
        results.append(module(x))
        module.load_state_dict(kind.module().state_dict())
        results.append(module(x))
    setattr(module, kind.weight("weight_hh"), nn.Parameter(torch.full_like(weight, 0.1)))
    return results, module(x)


@program
def shared_weights(kind: Kind) -> Any:
    one, two, x = kind.module(), kind.module(), kind.input()
    setattr(two, kind.weight("weight_hh"), getattr(one, kind.weight("weight_hh")))
    both = nn.ModuleList([one, two])
    return trained(both, lambda: first(one(x)) + first(two(x)))


@program
def flattened(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    if not kind.is_step:
        module.flatten_parameters()
        module.double().float().flatten_parameters()
    return module(x), trained(module, lambda: module(x))


@program
def views_of_one_vector(kind: Kind) -> Any:
    """All parameters in one tensor, as flattening optimisers have them."""
    module, x = kind.module(), kind.input()
    flat = nn.utils.parameters_to_vector(module.parameters()).detach()
    nn.utils.vector_to_parameters(flat, module.parameters())
    outputs = module(x)
    flat.mul_(0.5)
    return outputs, module(x)


@program
def frozen(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("bias" in name)
    first(module(x)).sum().backward()
    return [parameter.grad for parameter in module.parameters() if parameter.requires_grad]


@program
def second_derivatives(kind: Kind) -> Any:
    module, x = kind.module().double(), kind.input().double().requires_grad_()
    (gradient,) = torch.autograd.grad(first(module(x)).pow(2).sum(), x, create_graph=True)
    gradient.pow(2).sum().backward()  # a gradient penalty
    return gradient, x.grad, [parameter.grad for parameter in module.parameters()]


@program
def several_losses_one_graph(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    outputs = tree_leaves(module(x))
    for out in outputs:
        out.sum().backward(retain_graph=True)
    torch.autograd.backward(outputs, [torch.ones_like(out) for out in outputs])
    return [parameter.grad for parameter in module.parameters()]


@program
def gradients_accumulated_in_place(kind: Kind) -> Any:
    module = kind.module()
    for _ in range(3):
        first(module(kind.input())).sum().backward()
    return [parameter.grad for parameter in module.parameters()]


@program
def in_a_sequence_of_modules(kind: Kind) -> Any:
    class Take(nn.Module):
        def forward(self, outputs: Any) -> Tensor:
            return first(outputs)

    model = nn.Sequential(nn.Linear(5, 5), nn.LayerNorm(5), kind.module(), Take(), nn.LazyLinear(2))
    x = kind.input()
    model(x)
    return trained(model, lambda: model(x))


@program
def autocast(kind: Kind) -> Any:
    module, x = kind.module(), kind.input()
    with torch.autocast("cpu", torch.bfloat16):
        outputs = module(x)
    return outputs


@program
def other_default_dtype(kind: Kind) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        module, x = kind.module(), kind.input()
        return module(x), trained(module, lambda: module(x))
    finally:
        torch.set_default_dtype(torch.float32)


@program
def deterministic(kind: Kind) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        module, x = kind.module(), kind.input()
        return module(x), trained(module, lambda: module(x))
    finally:
        torch.use_deterministic_algorithms(False)


@program
def anomaly_detection(kind: Kind) -> Any:
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("ignore")
        module, x = kind.module(), kind.input()
        return trained(module, lambda: module(x))


@program
def saved_tensors_on_the_disk(kind: Kind) -> Any:
    def pack(tensor: Tensor) -> bytes:
        file = io.BytesIO()
        torch.save(tensor.detach(), file)
        return file.getvalue()

    module, x = kind.module(), kind.input()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: torch.load(io.BytesIO(packed))):
        return trained(module, lambda: module(x))


def run(what: Program, kind: Kind) -> list[Tensor]:
    torch.manual_seed(7)
    return [leaf.detach() for leaf in tree_leaves(what(kind)) if isinstance(leaf, Tensor)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("what", PROGRAMS, ids=lambda what: what.__name__)
def test_same_as_on_pytorch(what: Program, kind: Kind) -> None:
    loose = what is autocast
    with torch.backends.mkldnn.flags(enabled=not (loose and primitive_is_missing(kind.name, torch.bfloat16))):
        with weft.disabled():
            theirs = run(what, kind)
        weft.reset_stats()
        ours = run(what, kind)
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.stride() == b.stride()
        torch.testing.assert_close(a, b, **(dict(rtol=2e-2, atol=2e-2) if loose else dict(rtol=1e-4, atol=1e-5)))
    assert weft.stats()["calls"] > 0 and not weft.stats()["fallbacks"]
