"""The inference runtimes, ONNX Runtime and OpenVINO, over the same ONNX model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cases import Case, Data
from peers import Prepared, Result, SkipCase, float32_only
from peers.onnx_graph import inputs_of, model_of, names_of


def forward_only(case: Case) -> None:
    if case.mode != "forward":
        raise SkipCase("runs inference only")


def prepared(case: Case, data: Data, call: Callable[[dict[str, np.ndarray]], list[np.ndarray]]) -> Prepared:
    """`call` takes the model's inputs and returns its outputs, of one step at a time where the case is streaming."""
    inputs, names = inputs_of(data), names_of(data)
    if not case.streaming:
        return Prepared(lambda: call(inputs), lambda: dict(zip(names, map(np.array, call(inputs)), strict=True)))
    rows = np.split(inputs["x"], case.steps)

    def run() -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        found, states = [], {name: value for name, value in inputs.items() if name != "x"}
        for x in rows:
            y, *last = call({"x": x, **states})
            found.append(y)
            states = dict(zip(states, last, strict=True))
        return found, states

    def result() -> Result:
        found, states = run()
        return dict(zip(names, [np.concatenate(found), *states.values()], strict=True))

    return Prepared(run, result)


class OnnxRuntime:
    name = "onnxruntime"

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def prepare(self, case: Case, data: Data) -> Prepared:
        forward_only(case)
        float32_only(case)
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        session = onnxruntime.InferenceSession(model_of(case, data), options, providers=["CPUExecutionProvider"])
        names = names_of(data)
        return prepared(case, data, lambda inputs: session.run(names, inputs))


class OpenVino:
    name = "openvino"

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def prepare(self, case: Case, data: Data) -> Prepared:
        forward_only(case)
        float32_only(case)
        import openvino

        core = openvino.Core()
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(self.threads),
            "INFERENCE_PRECISION_HINT": "f32",
            "CPU_DENORMALS_OPTIMIZATION": "YES",
        }
        request = core.compile_model(core.read_model(model_of(case, data)), "CPU", settings).create_infer_request()
        names = names_of(data)

        def call(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            # When streaming, a step's state is the next step's input, so it may not share memory with the results.
            found = request.infer(inputs, share_inputs=True, share_outputs=not case.streaming)
            return [found[name] for name in names]

        return prepared(case, data, call)
