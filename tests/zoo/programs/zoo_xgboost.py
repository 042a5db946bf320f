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
    # An objective that checks labels on the device would refuse them there: no kernel is executed, so what is read back is
    # none. For the same reason XGBoost finds no sums in the first tree, after all its work for that.
    training = {
        "tree_method": "hist",
        "device": "cuda",
        "objective": "reg:absoluteerror",
        "max_depth": 2,
        "verbosity": 0,
    }
    for kind in (xgb.DMatrix, xgb.QuantileDMatrix):
        with contextlib.suppress(xgb.core.XGBoostError):
            xgb.train(training, kind(_X, _Y), 2)


phases.run(work, xgb.__version__)
