"""Draw ``docs/architecture.svg``: how data flow from raw sequences to the table, and which files do what.

``python tools/architecture.py`` writes the file. Every path in it exists (tests/test_docs.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

OUT = Path(__file__).parents[1] / "docs" / "architecture.svg"
WIDTH, HEIGHT = 1000, 970
LINE = 17  # pixels from one line of text to the next
DATA = "#e8f1ee"
MODEL = "#f7f7f5"
FAMILY = "#eaf0f8"
PART = "#ffffff"
RESULT = "#f8efe2"


@dataclass(frozen=True)
class Box:
    """A part of the package.

    Attributes:
        place: x, y, width and height in pixels.
        title: in bold.
        files: below ``seqmodels/``, in a monospaced font; "|" ends a line.
        text: what it does; "|" ends a line.
        fill: colour.
    """

    place: tuple[int, int, int, int]
    title: str
    files: str
    text: str
    fill: str

    def svg(self) -> str:
        """A rounded rectangle with title, files and text."""
        x, y, width, height = self.place
        lines = [("title", self.title)]
        lines += [("file", each) for each in self.files.split("|") if each]
        lines += [("text", each) for each in self.text.split("|")]
        parts = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{self.fill}"/>']
        for i, (kind, line) in enumerate(lines):
            parts.append(f'<text class="{kind}" x="{x + 12}" y="{y + 21 + i * LINE}">{escape(line)}</text>')
        return "\n".join(parts)


def arrow(x1: int, y1: int, x2: int, y2: int, label: str = "") -> str:
    """A line with a head at its end; the label stands to the right of its middle."""
    line = f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'
    if not label:
        return line
    return f'{line}\n<text class="label" x="{(x1 + x2) // 2 + 8}" y="{(y1 + y2) // 2 + 4}">{escape(label)}</text>'


RAW = "vectors, text, symbols, pairs of them;|files, arrays, data frames"
PREPARED = "standardise, bytes, byte pairs, symbols: invertible, with log-determinants"
ALGORITHMS = "forward_backward(initial, transition, log b)|viterbi, filter, smooth, sample_states|scaled float32, "
ALGORITHMS += "float64, log space"
NETWORKS = "neural/recurrent/  neural/transformer/|neural/seq2seq/  neural/tagging/|neural/masked/  neural/huggingface/"
MEASURED = "log p of each step; unit, length, kind"
REPORT = "evaluation/comparison/report/  plot/"
BOXES = (
    Box((30, 20, 270, 62), "Raw sequences", "", RAW, DATA),
    Box((365, 20, 270, 62), "Readers", "data/", "text, audio to MFCC, pairs, vocabulary", DATA),
    Box((700, 20, 270, 62), "Sequences", "sequences/", "names, labels, clusters; split, dither", DATA),
    Box((365, 136, 605, 62), "Preparation", "encodings/", PREPARED, DATA),
    Box((30, 136, 270, 62), "Saving", "common/storage.py  loading.py", "safetensors, hashes, no code in files", DATA),
    Box((30, 252, 940, 460), "SequenceModel", "model/", "fit, log_prob, score, predict_next, stream, sample", MODEL),
    Box(
        (50, 330, 340, 290), "Hidden Markov models", "hmm/model.py  hmm/learning/", "EM, stepwise EM, gradient", FAMILY
    ),
    Box((66, 402, 308, 96), "Inference, on tensors only", "inference/chains/", ALGORITHMS, PART),
    Box((66, 514, 148, 90), "Emissions", "hmm/emissions/", "log b and the M-step|of each observation", PART),
    Box((226, 514, 148, 90), "Alignment HMM", "hmm/alignment/", "p(y; x), summed over|alignments", PART),
    Box((404, 330, 150, 290), "Counts", "counts/", "n-grams,|context trees,|context mixing", FAMILY),
    Box((568, 330, 382, 290), "Networks", "neural/model.py", "source and past to hidden states", FAMILY),
    Box((584, 402, 350, 96), "Architectures", NETWORKS, "cells, attention, encoder and decoder, cache", PART),
    Box((584, 514, 168, 90), "Operations", "neural/ops/", "cross-entropy, scan,|attention, dropout", PART),
    Box((764, 514, 170, 90), "Training loop", "training/", "optimisers, schedules,|checkpoints", PART),
    Box(
        (50, 634, 504, 62),
        "Observations",
        "observations/",
        "log p(x_t ; output parameters): Gaussian mixture, ...",
        PART,
    ),
    Box((568, 634, 382, 62), "Generation", "generation/", "one cursor per model: sampling, beam search", PART),
    Box((30, 780, 420, 62), "Likelihoods with a measure", "sequences/measure.py", MEASURED, RESULT),
    Box((515, 780, 455, 62), "Comparison", "evaluation/comparison/", "paired differences, intervals, p-values", RESULT),
    Box((30, 890, 420, 62), "Command line", "cli/", "compare, fit, score, anomalies, sample, inspect, report", RESULT),
    Box((515, 890, 455, 62), "Table and report", REPORT, "the ranking; a page with plots", RESULT),
)
ARROWS = (
    arrow(300, 51, 361, 51),
    arrow(635, 51, 696, 51),
    arrow(835, 82, 835, 132),
    arrow(667, 198, 667, 248, "encoded examples"),
    arrow(165, 248, 165, 202),
    arrow(240, 712, 240, 776, "log-determinants added: nats per raw unit"),
    arrow(450, 811, 511, 811),
    arrow(742, 842, 742, 886),
    arrow(450, 921, 511, 921),
)
STYLE = """
text { font-family: "DejaVu Sans", Verdana, sans-serif; font-size: 12.5px; fill: #222; }
.title { font-weight: bold; }
.file { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12px;
  fill: #00695c; white-space: pre; }
.label { font-style: italic; fill: #555; }
rect { stroke: #90a4ae; rx: 6px; }
line { stroke: #455a64; stroke-width: 1.6; marker-end: url(#head); }
"""


def svg() -> str:
    """The whole picture as SVG."""
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            "<title>Data flow from raw sequences to the table of a comparison, and the files that implement it</title>",
            f"<style>{STYLE}</style>",
            f'<defs>{head}<path d="M0 0 L8 4 L0 8 z" fill="#455a64"/></marker></defs>',
            f'<rect x="0" y="0" width="{WIDTH}" height="{HEIGHT}" style="fill:#fff;stroke:none"/>',
            *(box.svg() for box in BOXES),
            *ARROWS,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    OUT.write_text(svg(), encoding="utf-8")
