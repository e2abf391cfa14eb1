"""How many regimes have a century's earthquakes? ``python experiments/earthquakes.py FILE``, one count a year.

Poisson HMMs by exact maximum likelihood (Zucchini, MacDonald and Langrock 2016, *Hidden Markov models for time
series*): EM to the end from several starts, the chain's start free. AIC and BIC count the free parameters.
"""

import sys
import time

import numpy as np
import pandas as pd

from seqmodels import HMM, Poisson
from seqmodels.evaluation.comparison.provenance import stamped

RESULTS = "experiments/results/earthquakes/earthquakes.csv"


def fit(counts: np.ndarray, n_states: int) -> dict[str, object]:
    began = time.perf_counter()
    model = HMM(n_states, observation=Poisson(), n_init=10, max_iter=2_000, tol=1e-10, start="free").fit([counts])
    log_prob, n = float(model.log_prob([counts])[0]), model.n_parameters_
    return {
        "n_states": n_states,
        "log_prob": round(log_prob, 4),
        "n_parameters": n,
        "aic": round(2 * n - 2 * log_prob, 3),
        "bic": round(n * np.log(len(counts)) - 2 * log_prob, 3),
        "rates": " ".join(f"{rate:.3f}" for rate in np.sort(model.rates_[:, 0])),
        "seconds": round(time.perf_counter() - began, 2),
    }


if __name__ == "__main__":
    counts = np.loadtxt(sys.argv[1])[:, None]
    frame = stamped(pd.DataFrame([fit(counts, k) for k in (1, 2, 3)]))
    frame.to_csv(RESULTS, index=False)
    print(frame.drop(columns=["command", "date", "hardware"]).to_string(index=False))
