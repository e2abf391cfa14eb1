"""An iteration of EM of gaussian-hsmm: ``python gaussian_hsmm.py FILE`` prints its processor seconds and log p(x).

``FILE``, of numpy: ``x (n, T)`` and the parameters to start from.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
from gaussian_hsmm import GaussianHSMM  # noqa: E402  (this file has its name)


def main() -> None:
    """The command."""
    given = dict(np.load(sys.argv[1]))
    x: NDArray[np.float64] = given["x"]
    k, longest = given["durations"].shape
    model = GaussianHSMM(n_components=k, max_duration=longest, covariance_type="diag")
    model.n_features_ = 1
    model.startprob_, model.transmat_ = given["initial"], given["transition"]
    model.means_, model.covars_ = given["means"][:, None], given["variances"][:, None]
    model.duration_means_ = given["durations"] @ np.arange(1.0, longest + 1)
    padded = np.concatenate([np.zeros((k, 1)), given["durations"]], 1)
    with np.errstate(divide="ignore"):
        model.duration_probs_, model._log_duration_probs_ = padded, np.log(padded)
    frames, lengths = x.reshape(-1, 1), np.full(len(x), x.shape[1])
    before = time.process_time()
    statistics = model._expectation_step(frames, lengths)
    model._maximization_step(frames, statistics)
    seconds = time.process_time() - before
    print(json.dumps({"seconds": seconds, "log_prob": statistics["log_likelihood"]}))


if __name__ == "__main__":
    main()
