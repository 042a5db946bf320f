"""ONNX Runtime: a small network by the CUDA execution provider, its products by cuBLAS."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import phases
from onnx import TensorProto, helper, numpy_helper

_WIDTH, _LAYERS = 64, 3
_RANDOM = np.random.default_rng(1)
_X = _RANDOM.random((8, _WIDTH), np.float32)


def _network() -> bytes:
    nodes, weights, value = [], [], "x"
    for layer in range(_LAYERS):
        weights.append(numpy_helper.from_array(_RANDOM.random((_WIDTH, _WIDTH), np.float32), f"weights{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"weights{layer}"], [f"product{layer}"]))
        nodes.append(helper.make_node("Relu", [f"product{layer}"], [f"positive{layer}"]))
        nodes.append(helper.make_node("Softmax", [f"positive{layer}"], [value := f"softmax{layer}"]))
    takes, gives = (helper.make_tensor_value_info(name, TensorProto.FLOAT, _X.shape) for name in ("x", value))
    graph = helper.make_graph(nodes, "network", [takes], [gives], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model.SerializeToString()


ort.preload_dlls()
_session = ort.InferenceSession(_network(), providers=["CUDAExecutionProvider"])
assert "CUDAExecutionProvider" in _session.get_providers()


def work() -> None:
    _session.run(None, {"x": _X})


phases.run(work, ort.__version__)
