"""A package's texts in C, C++ and CMake."""

from __future__ import annotations

from weft._base import trees
from weft._base.dtypes import DTYPES
from weft._packages.steps import Step

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace
new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return
short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef
typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
#: What no namespace of C++ can be named.
CPP_KEYWORDS = frozenset(_KEYWORDS.split())

#: PyTorch's names of dtypes, by the engine's.
TORCH_NAMES = {name: str(dtype).removeprefix("torch.") for dtype, name in DTYPES.items()}


def header(
    name: str,
    step: Step,
    outputs: list[tuple[str, list[int]]],
    state_bytes: int,
    state_align: int,
    quantize: str | None,
) -> str:
    """NAME.h. `outputs`: dtype and sizes of each. `quantize`: what weights are stored as, if as another type."""
    upper = name.upper()
    lines = [f"/* {name}: written by Weft. {_what(step)}"]
    tensors = [(f"inputs[{i}]", path, trees.describe(t)) for i, (path, t) in enumerate(step.inputs.items())]
    lags = step.lags or [0] * len(outputs)
    for i, (path, (dtype, sizes), lag) in enumerate(zip(step.outputs, outputs, lags, strict=True)):
        late = f", {lag} elements late" if lag else ""
        tensors.append((f"outputs[{i}]", path, f"{TORCH_NAMES[dtype]}[{','.join(map(str, sizes))}]{late}"))
    tensors += [(f"states[{i}]", path, trees.describe(t)) for i, (path, t) in enumerate(step.states.items())]
    lines += [f" *   {slot:12}{path} {kind}" for slot, path, kind in tensors]
    if quantize is not None:
        stored = "int8, and activations are rounded to int8 at each step" if quantize == "int8-dynamic" else quantize
        lines.append(f" * Weights of products are stored as {stored}.")
    comment = "\n".join(lines) + "\n */"
    chunk = ""
    if step.lags is not None:
        chunk = f"\n/* Steps of the model over time that a call of step takes. */\n#define {upper}_CHUNK {step.chunk}\n"
    return f"""{comment}
#ifndef WEFT_PACKAGE_{upper}_H
#define WEFT_PACKAGE_{upper}_H

#include "weft_model.h"

/* Enough for a state on every target of this package, for memory that is there before the program runs. */
#define {upper}_STATE_BYTES {state_bytes}
#define {upper}_STATE_ALIGN {state_align}
{chunk}
#ifdef __cplusplus
extern "C" {{
#endif

/* The model, for the best instruction set that this package has and the processor too. It is found anew at each call:
 * keep it. */
const weft_model* {name}_model(void);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _what(step: Step) -> str:
    if step.lags is None:
        return "One step of a trained recurrence."
    return f"A model over time; a call takes {step.chunk} of its steps." if step.chunk > 1 else "A model over time."


def cpp_header(name: str) -> str:
    """NAME.hpp."""
    return f"""// {name}: written by Weft. `weft::State state({name}::model());` is a state.
#ifndef WEFT_PACKAGE_{name.upper()}_HPP
#define WEFT_PACKAGE_{name.upper()}_HPP

#include "{name}.h"
#include "weft_model.hpp"

namespace {name} {{

/// Found once.
inline const weft_model* model() noexcept {{
  static const weft_model* const found = {name}_model();
  return found;
}}

}}  // namespace {name}

#endif
"""


def example(name: str, step: Step) -> str:
    """example.c: 10 steps on zeros."""
    return f"""/* Ten steps of {name} on inputs of zeros. To build: cc example.c lib{name}.a -o example */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

static _Alignas({name.upper()}_STATE_ALIGN) unsigned char state[{name.upper()}_STATE_BYTES];

int main(void) {{
  const weft_model* model = {name}_model();
  if (model->abi != WEFT_MODEL_ABI || model->reset(state) != WEFT_OK) return 1;
  const void** inputs = malloc((model->input_count + 1) * sizeof *inputs);
  void** outputs = malloc((model->output_count + 1) * sizeof *outputs);
  if (inputs == NULL || outputs == NULL) return 1;
  for (uint32_t i = 0; i < model->input_count; ++i) inputs[i] = calloc(1, model->inputs[i].bytes + 1);
  for (uint32_t i = 0; i < model->output_count; ++i) outputs[i] = calloc(1, model->outputs[i].bytes + 1);
  for (int t = 0; t < 10; ++t)
    if (model->step(state, inputs, outputs) != WEFT_OK) return 1;
  printf("%s on %s, %lu bytes a state\\n", model->name, model->target, (unsigned long)model->state_bytes);
  for (uint32_t i = 0; i < model->output_count; ++i) {{
    const weft_tensor* y = &model->outputs[i];
    if (y->dtype != WEFT_F32) continue;
    printf("%s:", y->name);
    for (size_t k = 0; k < y->bytes / 4 && k < 8; ++k) printf(" %.6g", (double)((const float*)outputs[i])[k]);
    printf("\\n");
  }}
  return 0;
}}
"""


def cmake(name: str) -> str:
    """NAMEConfig.cmake."""
    return f"""# find_package({name} CONFIG REQUIRED PATHS FOLDER NO_DEFAULT_PATH) makes the library {name}::{name}.
if(NOT TARGET {name}::{name})
  add_library({name}::{name} STATIC IMPORTED)
  set_target_properties({name}::{name} PROPERTIES
    IMPORTED_LOCATION "${{CMAKE_CURRENT_LIST_DIR}}/lib{name}.a"
    INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}")
endif()
"""
