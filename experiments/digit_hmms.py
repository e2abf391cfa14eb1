"""How do hidden Markov models of each kind score on spoken digits? ``python experiments/digit_hmms.py FOLDER``.

13 MFCC, files with index 0 to 4 held out: the official split; nats a frame in raw units.
"""

import sys

import torch

from seqmodels import HMM, AutoregressiveGaussian, GaussianMixture, Sequences, data
from seqmodels.evaluation.runs.run import run
from seqmodels.evaluation.runs.suites import Task

MODELS = {
    "gaussian": HMM(1, observation=GaussianMixture(1, "full")),
    "hmm-16x4": HMM(16, observation=GaussianMixture(4)),
    "hmm-48x8": HMM(48, observation=GaussianMixture(8)),
    "hmm-128-full": HMM(128, observation=GaussianMixture(1, "full")),
    "var": HMM(1, observation=AutoregressiveGaussian()),
    "ar-hmm-16": HMM(16, observation=AutoregressiveGaussian()),
    "ar-hmm-48": HMM(48, observation=AutoregressiveGaussian()),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    frames = data.audio(sys.argv[1])
    frames = Sequences(frames.items, metadata=frames.metadata.drop(columns="cluster"))
    held_out = frames.metadata["index"].astype(int).to_numpy() < 5
    train, test = (frames.take(~held_out), None), (frames.take(held_out), None)
    task = Task("hmms", "Spoken digits, HMMs: log p(x)", train, test, dict(MODELS), 150.0, "hmm-16x4")
    run([task], "experiments/results/digits")
