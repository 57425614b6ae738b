"""The inference runtimes, ONNX Runtime and OpenVINO, over the same ONNX model."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case, Data
from peers import Prepared, Result, SkipCase, float32_only
from peers.onnx_graph import inputs_of, model_of, names_of


def forward_only(case: Case) -> None:
    if case.mode != "forward":
        raise SkipCase("runs inference only")


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
        inputs, names = inputs_of(data), names_of(data)

        def run() -> Any:
            return session.run(names, inputs)

        return Prepared(run, lambda: dict(zip(names, run(), strict=True)))


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
        inputs, names = inputs_of(data), names_of(data)

        def run() -> Any:
            return request.infer(inputs, share_inputs=True, share_outputs=True)

        def result() -> Result:
            found = run()
            return {name: np.array(found[name]) for name in names}

        return Prepared(run, result)
