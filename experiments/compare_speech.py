"""Which family explains speech best? Density and continuation: ``python experiments/compare_speech.py [FOLDER]``."""

import sys

from seqmodels import data
from seqmodels.evaluation.runs.run import run
from seqmodels.evaluation.runs.suites import speech_tasks

if __name__ == "__main__":
    frames = data.audio(sys.argv[1]) if len(sys.argv) > 1 else None
    run(speech_tasks(frames), "experiments/results/speech")
