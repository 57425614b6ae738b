"""The cells of examples/cells in jax: jax.lax.scan, what doesn't depend on the carry outside of it.

Each is `cell(p, i, unroll, key) -> outputs`: p are the parameters by PyTorch's names, its two-dimensional weights
stored as [in, out], i the inputs by name; the outputs stand in the order of the PyTorch cell's. `key` is None but where
random masks are asked for.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.nn import relu, sigmoid, softplus


def scan(step: Any, init: Any, xs: Any, unroll: int, reverse: bool = False) -> Any:
    return jax.lax.scan(step, init, xs, unroll=unroll, reverse=reverse)


def normalised(x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weight + bias


def layer_norm_gru(p: Any, i: Any, unroll: int, key: Any) -> Any:
    blocks, width, _ = p["recurrent"].shape
    rows = i["h"].shape[0]

    def step(h: Any, projected: Any) -> Any:
        product = jnp.einsum("bgi,gio->bgo", h.reshape(rows, blocks, width), p["recurrent"])
        gates = normalised(product.reshape(rows, -1) + projected, p["norm.weight"], p["norm.bias"])
        gates = gates.reshape(rows, blocks, 3, width)
        reset, candidate, update = (gates[:, :, gate].reshape(rows, -1) for gate in range(3))
        update = sigmoid(update - 1)
        h = update * jnp.tanh(sigmoid(reset) * candidate) + (1 - update) * h
        return h, h

    h, y = scan(step, i["h"], i["x"] @ p["input.weight"], unroll)
    return y, h


def peephole_lstm(p: Any, i: Any, unroll: int, key: Any) -> Any:
    p_i, p_f, p_o = p["peephole"]

    def step(state: Any, projected: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(projected + h @ p["recurrent.weight"], 4, -1)
        c = sigmoid(f + p_f * c) * c + sigmoid(i + p_i * c) * jnp.tanh(g)
        h = sigmoid(o + p_o * c) * jnp.tanh(c)
        return (h, c), h

    (h, c), y = scan(step, i["state"], i["x"] @ p["input.weight"] + p["input.bias"], unroll)
    return y, h, c


def mgu(p: Any, i: Any, unroll: int, key: Any) -> Any:
    def step(h: Any, projected: Any) -> Any:
        f_x, n_x = jnp.split(projected, 2, -1)
        f = sigmoid(f_x + h @ p["forget.weight"])
        h = (1 - f) * h + f * jnp.tanh(n_x + (f * h) @ p["candidate.weight"])
        return h, h

    h, y = scan(step, i["h"], i["x"] @ p["input.weight"] + p["input.bias"], unroll)
    return y, h


def zoneout_lstm(p: Any, i: Any, unroll: int, key: Any) -> Any:
    projected = i["x"] @ p["input.weight"] + p["input.bias"]

    def mixed(key: Any, old: Any, new: Any, rate: float) -> Any:
        if key is None:
            return rate * old + (1 - rate) * new
        return jnp.where(jax.random.uniform(key, old.shape) < rate, old, new)

    def step(state: Any, inputs: Any) -> Any:
        (h, c), (projected, keys) = state, inputs
        i, f, g, o = jnp.split(projected + h @ p["recurrent.weight"], 4, -1)
        new_c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
        new_h = sigmoid(o) * jnp.tanh(new_c)
        for_h, for_c = (None, None) if keys is None else jax.random.split(keys)
        h, c = mixed(for_h, h, new_h, 0.05), mixed(for_c, c, new_c, 0.5)
        return (h, c), h

    keys = None if key is None else jax.random.split(key, len(projected))
    (h, c), y = scan(step, i["state"], (projected, keys), unroll)
    return y, h, c


def policy_resets(p: Any, i: Any, unroll: int, key: Any) -> Any:
    projected = i["seen"] @ p["cell.weight_ih"] + p["cell.bias_ih"]

    def step(h: Any, inputs: Any) -> Any:
        projected, starts = inputs
        h = jnp.where(starts[:, None], p["initial"], h)
        r_x, z_x, n_x = jnp.split(projected, 3, -1)
        r_h, z_h, n_h = jnp.split(h @ p["cell.weight_hh"] + p["cell.bias_hh"], 3, -1)
        n, z = jnp.tanh(n_x + sigmoid(r_x + r_h) * n_h), sigmoid(z_x + z_h)
        h = n + z * (h - n)
        return h, h

    h, y = scan(step, i["h"], (projected, i["starts"]), unroll)
    logits = y @ p["action.weight"] + p["action.bias"]
    return logits, (y @ p["value.weight"] + p["value.bias"])[..., 0], h


def linear_step(h: Any, ab: Any) -> Any:
    h = ab[0] * h + ab[1]
    return h, h


def positive(x: Any) -> Any:
    return jnp.where(x >= 0, x + 0.5, sigmoid(x))


def min_gru(p: Any, i: Any, unroll: int, key: Any) -> Any:
    z, candidate = jnp.split(i["x"] @ p["gates.weight"] + p["gates.bias"], 2, -1)
    h, y = scan(linear_step, i["h"], (sigmoid(-z), sigmoid(z) * positive(candidate)), unroll)
    return y, h


def min_lstm(p: Any, i: Any, unroll: int, key: Any) -> Any:
    f, g, candidate = jnp.split(i["x"] @ p["gates.weight"] + p["gates.bias"], 3, -1)
    f, g = sigmoid(f), sigmoid(g)
    h, y = scan(linear_step, i["h"], (f / (f + g), g / (f + g) * positive(candidate)), unroll)
    return y, h


def sru(p: Any, i: Any, unroll: int, key: Any) -> Any:
    alpha = 3**0.5  # of a highway bias of 0

    def step(c: Any, inputs: Any) -> Any:
        x, projected = inputs
        new, f, r = jnp.split(projected, 3, -1)
        f = sigmoid(f + p["v"][0] * c + p["bias"][0])
        r = sigmoid(r + p["v"][1] * c + p["bias"][1])
        c = f * c + (1 - f) * new
        return c, r * c + (1 - r) * alpha * x

    c, h = scan(step, i["c"], (i["x"], i["x"] @ p["input.weight"]), unroll)
    return h, c


def indrnn(p: Any, i: Any, unroll: int, key: Any) -> Any:
    def step(h: Any, projected: Any) -> Any:
        h = relu(projected + p["recurrent"] * h)
        return h, h

    h, y = scan(step, i["h"], i["x"] @ p["input.weight"] + p["input.bias"], unroll)
    return y, h


def selective_ssm(p: Any, i: Any, unroll: int, key: Any) -> Any:
    x, a = i["x"], -jnp.exp(p["log_a"])
    states, rank = a.shape[1], p["delta.weight"].shape[0]
    low, b, c = jnp.split(x @ p["select.weight"], (rank, rank + states), -1)
    delta = softplus(low @ p["delta.weight"] + p["delta.bias"])

    def step(h: Any, inputs: Any) -> Any:
        x, delta, b, c = inputs
        h = jnp.exp(delta[:, :, None] * a) * h + (delta * x)[:, :, None] * b[:, None]
        return h, (h * c[:, None]).sum(2) + p["d"] * x

    return scan(step, jnp.zeros((*x.shape[1:], states), x.dtype), (x, delta, b, c), unroll)[1]


def attention_decoder(p: Any, i: Any, unroll: int, key: Any) -> Any:
    x, memory, present = i["x"], i["memory"], i["present"]
    word = p["cell.weight_ih"][: x.shape[2]], p["cell.weight_ih"][x.shape[2] :]
    projected = x @ word[0] + p["cell.bias_ih"] + p["cell.bias_hh"]

    def step(state: Any, projected: Any) -> Any:
        h, c, attended = state
        i, f, g, o = jnp.split(projected + attended @ word[1] + h @ p["cell.weight_hh"], 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
        h = sigmoid(o) * jnp.tanh(c)
        scores = jnp.einsum("bh,bsh->bs", h @ p["query.weight"], memory)
        weights = jax.nn.softmax(jnp.where(present, scores, -jnp.inf), -1)
        context = jnp.einsum("bs,bsh->bh", weights, memory)
        attended = jnp.tanh(jnp.concatenate([context, h], 1) @ p["output.weight"])
        return (h, c, attended), (attended, weights)

    zeros = jnp.zeros((x.shape[1], memory.shape[2]), x.dtype)
    return scan(step, (zeros, zeros, zeros), projected, unroll)[1]


def conv_lstm(p: Any, i: Any, unroll: int, key: Any) -> Any:
    x, weight = i["x"], p["gates.weight"]
    hidden, inputs = weight.shape[0] // 4, x.shape[2]

    def convolved(image: Any, weight: Any) -> Any:
        return jax.lax.conv_general_dilated(image, weight, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))

    flat = convolved(x.reshape(-1, *x.shape[2:]), weight[:, :inputs]) + p["gates.bias"][:, None, None]

    def step(state: Any, projected: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(projected + convolved(h, weight[:, inputs:]), 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
        h = sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], hidden, *x.shape[3:]), x.dtype)
    (h, c), y = scan(step, (zeros, zeros), flat.reshape(*x.shape[:2], *flat.shape[1:]), unroll)
    return y, h, c


def neural_ode(p: Any, i: Any, unroll: int, key: Any) -> Any:
    def field(t: Any, y: Any) -> Any:
        hidden = jnp.tanh(y @ p["first.weight"] + p["first.bias"] + t * p["time"])
        return jnp.tanh(hidden @ p["second.weight"] + p["second.bias"]) @ p["last.weight"] + p["last.bias"]

    def step(y: Any, interval: Any) -> Any:
        t, dt = interval
        k1 = field(t, y)
        k2 = field(t + dt / 2, y + dt / 2 * k1)
        k3 = field(t + dt / 2, y + dt / 2 * k2)
        k4 = field(t + dt, y + dt * k3)
        y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    _, ys = scan(step, i["y"], (i["times"][:-1], jnp.diff(i["times"])), unroll)
    return jnp.concatenate([i["y"][None], ys])


def kalman(p: Any, i: Any, unroll: int, key: Any) -> Any:
    f, q, h, r = i["transition"], i["transition_noise"], i["observation"], i["observation_noise"]
    constant = 0.5 * h.shape[0] * jnp.log(2 * jnp.pi)

    def step(belief: Any, x: Any) -> Any:
        m, c = belief
        m, c = m @ f.T, f @ c @ f.T + q
        error = x - m @ h.T
        hc = h @ c
        factor = jnp.linalg.cholesky(hc @ h.T + r)
        gain = jax.scipy.linalg.cho_solve((factor, True), hc)
        scaled = jax.scipy.linalg.solve_triangular(factor, error[:, :, None], lower=True)[:, :, 0]
        log_det = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
        likelihood = -0.5 * (scaled * scaled).sum(-1) - log_det - constant
        m = m + (error[:, None] @ gain)[:, 0]
        c = c - jnp.swapaxes(gain, 1, 2) @ hc
        return (m, c), (m, c, likelihood)

    return scan(step, (i["mean"], i["covariance"]), i["xs"], unroll)[1]


def log_sums(transition: Any) -> Any:
    """The step of the forward algorithm."""

    def step(alpha: Any, emission: Any) -> Any:
        alpha = jax.nn.logsumexp(alpha[:, :, None] + transition, axis=1) + emission
        return alpha, alpha

    return step


def hmm(p: Any, i: Any, unroll: int, key: Any) -> Any:
    emissions = jax.nn.log_softmax(p["emission"], 0)[i["observations"]]
    first = jax.nn.log_softmax(p["initial"]) + emissions[0]
    alpha, _ = scan(log_sums(jax.nn.log_softmax(p["transition"], 1)), first, emissions[1:], unroll)
    return jax.nn.logsumexp(alpha, 1)


def viterbi(p: Any, i: Any, unroll: int, key: Any) -> Any:
    def forward(best: Any, emission: Any) -> Any:
        scores = best[:, :, None] + i["transition"]
        return scores.max(1) + emission, scores.argmax(1)

    def backward(state: Any, pointer: Any) -> Any:
        state = jnp.take_along_axis(pointer, state[:, None], 1)[:, 0]
        return state, state

    best, pointers = scan(forward, i["initial"] + i["emissions"][0], i["emissions"][1:], unroll)
    last = best.argmax(1)
    _, states = scan(backward, last, pointers, unroll, reverse=True)
    return best.max(1), jnp.concatenate([states, last[None]])


def crf(p: Any, i: Any, unroll: int, key: Any) -> Any:
    emissions, tags, lengths, transition = i["emissions"], i["tags"], i["lengths"], p["transition"]
    present = jnp.arange(len(emissions))[:, None] < lengths

    def step(alpha: Any, inputs: Any) -> Any:
        emission, here = inputs
        return jnp.where(here[:, None], log_sums(transition)(alpha, emission)[0], alpha), None

    alpha, _ = scan(step, p["initial"] + emissions[0], (emissions[1:], present[1:]), unroll)
    total = jax.nn.logsumexp(alpha + p["final"], 1)
    each = jnp.take_along_axis(emissions, tags[:, :, None], 2)[:, :, 0]
    inside = (each * present).sum(0) + (transition[tags[:-1], tags[1:]] * present[1:]).sum(0)
    last = jnp.take_along_axis(tags, lengths[None] - 1, 0)[0]
    return total - (p["initial"][tags[0]] + inside + p["final"][last])


def biquad(p: Any, i: Any, unroll: int, key: Any) -> Any:
    b, a, x = i["b"], i["a"], i["x"]

    def step(state: Any, x: Any) -> Any:
        s1, s2 = state
        y = b[0] * x + s1
        return (b[1] * x - a[0] * y + s2, b[2] * x - a[1] * y), y

    zeros = jnp.zeros(x.shape[1:], x.dtype)
    return scan(step, (zeros, zeros), x, unroll)[1]


CELLS = {
    cell.__name__: cell
    for cell in (
        layer_norm_gru,
        peephole_lstm,
        mgu,
        zoneout_lstm,
        policy_resets,
        min_gru,
        min_lstm,
        sru,
        indrnn,
        selective_ssm,
        attention_decoder,
        conv_lstm,
        neural_ode,
        kalman,
        hmm,
        viterbi,
        crf,
        biquad,
    )
}
