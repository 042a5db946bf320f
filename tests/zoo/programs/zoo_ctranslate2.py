"""CTranslate2: a small Transformer of random weights goes over prompts, its products by cuBLAS."""

from __future__ import annotations

import tempfile

import ctranslate2
import numpy as np
import phases
from ctranslate2.specs import TransformerDecoderModelSpec

_WIDTH, _WORDS, _POSITIONS = 64, 100, 128
_PROMPTS = [["1", "5", "6"], ["1", "7"]]
_random = np.random.default_rng(1).random


def _linear(spec: object, outputs: int, inputs: int) -> None:
    spec.weight, spec.bias = _random((outputs, inputs), np.float32), _random(outputs, np.float32)


def _norm(spec: object) -> None:
    spec.gamma, spec.beta = np.ones(_WIDTH, np.float32), np.zeros(_WIDTH, np.float32)


def _spec() -> TransformerDecoderModelSpec:
    spec = TransformerDecoderModelSpec.from_config(2, 4, pre_norm=True)
    decoder = spec.decoder
    decoder.embeddings.weight = _random((_WORDS, _WIDTH), np.float32)
    decoder.position_encodings.encodings = _random((_POSITIONS, _WIDTH), np.float32)
    decoder.scale_embeddings = False
    for layer in decoder.layer:
        _norm(layer.self_attention.layer_norm)
        _linear(layer.self_attention.linear[0], 3 * _WIDTH, _WIDTH)
        _linear(layer.self_attention.linear[1], _WIDTH, _WIDTH)
        _norm(layer.ffn.layer_norm)
        _linear(layer.ffn.linear_0, 4 * _WIDTH, _WIDTH)
        _linear(layer.ffn.linear_1, _WIDTH, 4 * _WIDTH)
    _norm(decoder.layer_norm)
    _linear(decoder.projection, _WORDS, _WIDTH)
    spec.register_vocabulary([str(word) for word in range(_WORDS)])
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = "0", "1", "2"
    spec.validate()
    return spec


with tempfile.TemporaryDirectory() as _directory:
    _spec().save(_directory)
    _generator = ctranslate2.Generator(_directory, device="cuda", compute_type="float32")


def work() -> None:
    _generator.forward_batch(_PROMPTS)
    list(_generator.score_batch(_PROMPTS))


phases.run(work, ctranslate2.__version__)
