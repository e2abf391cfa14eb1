"""JoeyNMT (Kreutzer et al., 2019) on German captions: ``python benchmarks/peers/captions_joeynmt.py FOLDER``.

Its own data, model, training loop and beam search, for a number of seconds, beside ``experiments/translation.py``:
4,000 pieces a side, 64 captions a batch, nats a byte and BLEU of test 2016. So that it has what the models here have,
its learning rate rises for 3 % and falls to zero over the last 60 % of the seconds, products are in bfloat16 (which its
configuration switches on for GPUs alone; ``--float32``), and nothing is validated in between.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from joeynmt.config import parse_global_args, set_validation_args
from joeynmt.prediction import predict
from joeynmt.training import TrainManager, prepare

PARTS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
PIECES, BATCH, WIDTH = 4_000, 64, 256
MARKS = {"unk": ("<unk>", 0), "pad": ("<pad>", 1), "bos": ("<s>", 2), "eos": ("</s>", 3)}
LEARNING_RATES = {"transformer": 1e-3, "lstm": 2e-3}
sentencepiece.SentencePieceProcessor.SetVocabulary = lambda *_: (
    None
)  # later versions lack it, and the vocabulary is whole


def _prepare_text(source: Path, folder: Path) -> list[str]:
    """Write the parts as JoeyNMT reads them, and the pieces of either side; return the captions to be predicted."""
    for part, name in PARTS.items():
        for side in ("de", "en"):
            with gzip.open(source / f"{name}.{side}.gz", "rt", encoding="utf-8") as file:
                lines = file.read().splitlines()
            (folder / f"{part}.{side}").write_text("".join(f"{line.strip()}\n" for line in lines), encoding="utf-8")
    for side in ("de", "en"):
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / f"train.{side}"),
            model_prefix=str(folder / side),
            vocab_size=PIECES,
            model_type="bpe",
            character_coverage=1.0,
            num_threads=1,
            minloglevel=2,
            **{f"{mark}_id": number for mark, (_, number) in MARKS.items()},
        )
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.model"))
        vocabulary = [pieces.id_to_piece(i) for i in range(len(MARKS), pieces.get_piece_size())]
        (folder / f"{side}.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    return (folder / "test.en").read_text(encoding="utf-8").splitlines()


def _layers(kind: str) -> dict[str, Any]:
    shape = {"num_layers": 3 if kind == "transformer" else 1, "hidden_size": WIDTH}
    shape["embeddings"] = {"embedding_dim": WIDTH, "scale": kind == "transformer", "dropout": 0.0}
    start = {"initializer": "xavier_uniform", "init_gain": 1.0, "bias_initializer": "zeros", "tied_embeddings": False}
    if kind == "transformer":
        shape |= {"type": kind, "num_heads": 8, "ff_size": 4 * WIDTH, "dropout": 0.05, "layer_norm": "pre"}
        start |= {"embed_initializer": "xavier_uniform", "embed_init_gain": 1.0, "tied_softmax": True}
        return {**start, "encoder": shape, "decoder": dict(shape)}
    shape |= {"type": "recurrent", "rnn_type": "lstm", "dropout": 0.2}
    start |= {"embed_initializer": "normal", "embed_init_weight": 0.1, "tied_softmax": False}
    attends = {"attention": "bahdanau", "init_hidden": "bridge", "input_feeding": True, "hidden_dropout": 0.2}
    return {**start, "encoder": {**shape, "bidirectional": True}, "decoder": {**shape, **attends}}


def _configuration(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sides = {
        role: {
            **{"lang": side, "level": "bpe", "max_length": 1_000, "min_length": 1, "lowercase": False},
            **{"normalize": False, "voc_file": str(folder / f"{side}.txt"), "voc_min_freq": 1, "voc_limit": PIECES},
            **{"tokenizer_type": "sentencepiece", "tokenizer_cfg": {"model_file": str(folder / f"{side}.model")}},
        }
        for role, side in (("src", "de"), ("trg", "en"))
    }
    marks = {f"{mark}_token": text for mark, (text, _) in MARKS.items()}
    marks |= {f"{mark}_id": number for mark, (_, number) in MARKS.items()}
    training = {"optimizer": "adamw", "adam_betas": [0.9, 0.98], "learning_rate": given.lr, "weight_decay": 0.0}
    training |= {"normalization": "tokens", "clip_grad_norm": 1.0, "loss": "crossentropy", "label_smoothing": 0.0}
    training |= {"scheduling": "warmupinversesquareroot", "learning_rate_warmup": 100, "learning_rate_min": 1e-9}
    training |= {"batch_size": BATCH, "batch_type": "sentence", "epochs": 10**6, "updates": 10**9, "shuffle": True}
    training |= {"validation_freq": 10**9, "logging_freq": 10**9, "early_stopping_metric": "ppl", "overwrite": True}
    testing = {"beam_size": 4, "beam_alpha": 0.6, "batch_size": 50, "batch_type": "sentence", "eval_metrics": ["bleu"]}
    return {
        **{"name": given.model, "joeynmt_version": "2.3.0", "model_dir": str(folder / "model"), "use_cuda": False},
        **{"random_seed": given.seed, "training": training, "testing": {**testing, "max_output_length": 100}},
        "data": {part: str(folder / part) for part in PARTS}
        | {"dataset_type": "plain", "special_symbols": marks}
        | sides,
        "model": _layers(given.model),
    }


class TimedTraining(TrainManager):
    """Its training loop, which ends after a number of seconds, as if by the keyboard."""

    seconds: float
    peak: float
    began: float | None = None

    def _train_step(self, batch: Any) -> Any:
        self.began = time.perf_counter() if self.began is None else self.began
        progress = (time.perf_counter() - self.began) / self.seconds
        if progress >= 1:
            raise KeyboardInterrupt
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak * min(1, progress / 0.03) * min(1, (1 - progress) / 0.6)
        return super()._train_step(batch)


def main(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = _prepare_text(given.folder, folder)
        (folder / "model").mkdir()
        options = parse_global_args(_configuration(given, folder), rank=0, mode="train")
        options.autocast.update(enabled=not given.float32, dtype=torch.bfloat16)
        model, train, dev, test = prepare(options, rank=0, mode="train")
        trainer = TimedTraining(
            **{"model": model, "model_dir": options.model_dir, "device": options.device, "n_gpu": 0, "rank": 0},
            **{"autocast": options.autocast, "seed": options.seed, "train_args": options.train},
            dev_args=set_validation_args(options.test),
        )
        trainer.seconds, trainer.peak, trainer.scheduler_step_at = given.seconds, given.lr, "never"
        trainer.train_and_validate(train_data=train, valid_data=dev)
        model.eval()
        marks = {"eos_index": model.eos_index, "pad_index": model.pad_index, "device": options.device}
        batches = test.make_iter(50, batch_type="sentence", shuffle=False, seed=0, num_workers=0, **marks)
        nats = 0.0
        for batch in batches:
            batch.sort_by_src_length()
            with torch.no_grad():
                nats += float(model(return_type="loss", **vars(batch))[0].sum())
        n_bytes = sum(len(text.encode()) for text in texts)
        which = f"{given.model}, seed {given.seed}, learning rate {given.lr}"
        print(f"{which}: {trainer.stats.steps} steps, {nats / n_bytes:.4f} nats a byte")
        scores = predict(model, test, options.device, 0, args=options.test, autocast=options.autocast)[0]
        print(f"BLEU {scores['bleu']:.2f}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, help="with train.de.gz, train.en.gz and so on")
    arguments.add_argument("--model", choices=tuple(LEARNING_RATES), default="transformer")
    arguments.add_argument("--seconds", type=float, default=240.0)
    arguments.add_argument("--lr", type=float, help="peak learning rate; default: 0.001 (transformer), 0.002 (lstm)")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--float32", action="store_true")
    parsed = arguments.parse_args()
    parsed.lr = LEARNING_RATES[parsed.model] if parsed.lr is None else parsed.lr
    main(parsed)
