"""Which family explains a text best? Density and continuation: ``python experiments/compare_text.py [FILE]``."""

import sys

from seqmodels import data
from seqmodels.evaluation.runs.run import run
from seqmodels.evaluation.runs.suites import text_tasks

if __name__ == "__main__":
    text = data.text(sys.argv[1]) if len(sys.argv) > 1 else None
    run(text_tasks(text), "experiments/results/text")
