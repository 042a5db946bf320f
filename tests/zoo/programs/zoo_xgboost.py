"""XGBoost: copies data to the GPU, sketches them, and begins to train a tree by histograms."""

from __future__ import annotations

import contextlib

import numpy as np
import phases
import xgboost as xgb

_RANDOM = np.random.default_rng(1)
_X = _RANDOM.random((512, 8), np.float32)
_Y = (_X[:, 0] > 0.5).astype(np.float32)


def work() -> None:
    data = xgb.QuantileDMatrix(_X, _Y)
    # The mock driver executes no kernel: XGBoost finds no sums in the first histogram, after all its work for that.
    with contextlib.suppress(xgb.core.XGBoostError):
        xgb.train({"tree_method": "hist", "device": "cuda", "max_depth": 2, "verbosity": 0}, data, 2)


phases.run(work, xgb.__version__)
