from __future__ import annotations

import warnings

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.comparison.plan import DataParts
from seqmodels.evaluation.comparison.unseen import n_unseen, open_alphabets

rng = np.random.default_rng(0)
TRAIN = [np.cumsum(rng.random(30) < 0.4) % 3 for _ in range(12)] + [np.array([0, 1, 5])]
TEST = [np.cumsum(rng.random(30) < 0.4) % 3 for _ in range(8)]
NEW = [*TEST[:-1], np.array([0, 1, 9, 4, 2])]


def models() -> dict[str, sm.SequenceModel]:
    return {"ngram": sm.NGram(2), "hmm": sm.HMM(2, max_iter=5), "gru": sm.GRU(d_model=4, max_steps=5)}


def test_a_symbol_that_training_never_had_does_not_end_a_comparison() -> None:
    result = sm.compare(models(), TRAIN, test=NEW)
    frame = result.frame
    assert sorted(frame["model"]) == ["gru", "hmm", "iid", "ngram"]
    assert np.isfinite(frame["score"]).all()
    assert frame["n_unseen"].tolist() == [2] * 4
    assert frame["ci_low"].notna().sum() == 2
    sizes = {name: model.encoding_.known_.tolist() for name, model in result.models.items()}
    assert sizes == {name: [0, 1, 2] for name in sizes}  # though networks held out a part
    assert "unseen: 2 of the held-out symbols are not in the training part. ngram, hmm, gru: " in result.how_to_read()
    assert result.table()["unseen"].tolist() == ["2"] * 4


def test_without_unseen_symbols_nothing_changes() -> None:
    result = sm.compare(models(), TRAIN, test=TEST)
    assert result.frame["n_unseen"].tolist() == [0] * 4
    assert "unseen" not in result.table()
    assert "unseen" not in result.how_to_read()
    for name, model in models().items():
        assert result.models[name].encoding == "auto"
        np.testing.assert_allclose(
            model.fit(TRAIN).log_prob(TEST), result.models[name].log_prob(TEST), rtol=1e-5, atol=1e-5
        )


def test_the_table_is_saved_with_the_count(tmp_path) -> None:
    result = sm.compare({"ngram": sm.NGram(2)}, TRAIN, test=NEW, iid=False)
    result.save(tmp_path / "result")
    loaded = sm.evaluation.Comparison.load(tmp_path / "result")
    assert str(loaded) == str(result)
    before = loaded.frame.drop(columns="n_unseen")  # of a file from before there was such a column
    before.attrs = {key: value for key, value in loaded.frame.attrs.items() if key != "opened"}
    older = sm.evaluation.Comparison(
        before, loaded.measure, loaded.log_prob_steps, loaded.histories, loaded.models, loaded.test
    )
    assert "unseen" not in str(older)


def test_a_stated_alphabet_stays() -> None:
    stated = {"a": sm.NGram(2, encoding=sm.Symbols(12)), "b": sm.NGram(2)}
    result = sm.compare(stated, TRAIN, test=NEW, iid=False)
    assert repr(stated["a"].encoding) == "Symbols(n_symbols=12)"
    assert result.frame.attrs["opened"] == ["b"]
    small = {"a": sm.NGram(2, encoding=sm.Symbols(6)), "b": sm.NGram(2)}
    with pytest.warns(UserWarning, match="a failed: sequence 7 has symbol 9 at position 2"):
        sm.compare(small, TRAIN, test=NEW, iid=False, baseline="b")


def test_symbols_of_sources_are_opened_where_they_are_read() -> None:
    y = [np.minimum(x, 2) for x in TRAIN]
    y_new = [np.minimum(x, 2) for x in NEW]
    parts = DataParts.from_arguments(TRAIN, y, (NEW, y_new), "auto")
    assert n_unseen(parts) == 0  # of what is scored
    chosen = {
        "shared": sm.GRU(),
        "encoder": sm.LSTMSeq2Seq(),
        "tagger": sm.HMMTagger(),
        "ignoring": sm.GRU(ignore_source=True),
    }
    assert open_alphabets(chosen, parts) == ["shared"]
    opened = {n: (repr(m.encoding), repr(m.source_encoding)) for n, m in chosen.items()}
    assert opened == {
        "shared": ("OpenSymbols()", "'auto'"),
        "encoder": ("'auto'", "OpenSymbols()"),
        "tagger": ("'auto'", "OpenSymbols()"),
        "ignoring": ("'auto'", "'auto'"),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        taggers = {"tagger": sm.HMMTagger(max_iter=2), "network": sm.LSTMTagger(d_model=4, max_steps=2)}
        result = sm.compare(taggers, TRAIN, y, test=(NEW, y_new), iid=False)
    assert result.frame["error"].tolist() == ["", ""]


def test_where_no_symbol_repeats_none_can_be_known() -> None:
    parts = DataParts.from_arguments([[0, 1], [2, 3]], None, [[7]], "auto")
    assert open_alphabets({"a": sm.NGram(2)}, parts) == []
    assert n_unseen(parts) == 1
    assert open_alphabets({"a": sm.NGram(2)}, DataParts.from_arguments([[0, 0]], None, None, "auto")) == []
