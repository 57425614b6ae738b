"""Dynamo's reasons in plain words, and what to do about each where nothing mechanical is known."""

from __future__ import annotations

#: By Dynamo's name of the reason: its meaning, and what to do.
_KNOWN: dict[str, tuple[str, str]] = {
    "Data-dependent branching": (
        "an if whose condition is a tensor: which branch runs is known only when the values are",
        "compute both branches and choose with torch.where, or use torch.cond",
    ),
    "Unsupported Tensor.item() call with capture_scalar_outputs=False": (
        "a tensor's value is asked for as a Python number, so all that leads to it has to run first",
        "keep it as a tensor, or take the value after the compiled function",
    ),
    "Attempted to call function marked as skipped": (
        "a call that Dynamo can't look into: a C function, or one of a library that it leaves alone",
        "do it outside of the compiled function, or make it an operator with torch.library.custom_op",
    ),
    "Failed to trace builtin operator": (
        "a builtin function with an effect or with values that Dynamo can't follow",
        "do it outside of the compiled function",
    ),
    "Dynamic shape operator": (
        "an operation whose result's size depends on the values",
        "use one of fixed size (a mask, torch.where, topk), or torch._dynamo.config.capture_dynamic_output_shape_ops",
    ),
    "Data dependent operator": (
        "an operation that needs a tensor's values while it is traced",
        "keep the values in tensors, or make the operation an operator with torch.library.custom_op",
    ),
    "Call to `torch._dynamo.graph_break()`": ("the program asks for a break", "delete the call"),
    "Skip calling `torch.compiler.disable()`d function": (
        "the function called is marked with torch.compiler.disable",
        "take the mark away, or move the call out of the compiled function",
    ),
    "Skip inlining `torch.compiler.disable()`d function": (
        "the function called is marked with torch.compiler.disable",
        "take the mark away, or move the call out of the compiled function",
    ),
    "Attempted to wrap RNN, GRU, or LSTM": (
        "Dynamo leaves nn.RNN, nn.GRU and nn.LSTM alone unless it is told otherwise",
        "import weft, which makes them one operator, or set torch._dynamo.config.allow_rnn",
    ),
    "Unsupported Tensor.backward() call": (
        "backward() inside the compiled function",
        "call backward() outside of it",
    ),
    "Tensor.tolist() with non-integer tensor": (
        "a tensor's values are asked for as Python numbers",
        "keep them in a tensor, or take the values after the compiled function",
    ),
    "graph break in loop": (
        "a break inside a loop: Dynamo can't go on in the middle of one, and leaves the whole function to Python",
        "mend the break in the loop, or move the loop's body into a function of its own",
    ),
    "Dynamo recompile limit exceeded": (
        "the function was compiled anew so often that Dynamo gave up",
        "see the recompilations: mark what changes as dynamic, or keep it from changing",
    ),
}


def in_plain_words(type_: str, explanation: str) -> str:
    """The meaning of the reason; Dynamo's own explanation if there are no better words."""
    known = _KNOWN.get(type_)
    return known[0] if known else (explanation.split(". ")[0].rstrip(".") or type_)


def advice(type_: str, hints: list[str]) -> str:
    """What to do, in words."""
    known = _KNOWN.get(type_)
    return known[1] if known else (hints[0] if hints else "do it outside of the compiled function")


def advice_for_guards(guards: list[str]) -> str:
    """How to avoid compiling a function again for these guards."""
    text = " ".join(guards)
    if "size mismatch" in text or ".size()" in text or "shape" in text:
        return "a size changed: torch._dynamo.mark_dynamic(tensor, dim) before the first call, or dynamic=True"
    if "requires_grad" in text or "grad_mode" in text or "GLOBAL_STATE" in text:
        return "grad mode or autocast changed: call it under the same one every time, or warm up each"
    if "dtype" in text:
        return "a dtype changed: give the same one every time"
    if "stride" in text:
        return "strides changed: call .contiguous() on the input"
    if "deallocated" in text:
        return "an object that the code was compiled for is gone: keep one alive and use it again"
    if "==" in text or text.startswith("not "):
        return "a Python value changed: pass it as a tensor, or keep it out of the compiled function"
    if "___check_obj_id" in text or "___check_type_id" in text or "__code__" in text:
        return "an object or a function was replaced by another one: keep one alive and use it again"
    return "keep what the guard says the same from call to call"
