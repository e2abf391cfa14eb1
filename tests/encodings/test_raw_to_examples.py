from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from seqmodels.encodings import BPE, Bytes, Characters, Encoding, Standardize, Symbols
from seqmodels.encodings.defaults import Choices, default_encoding
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.hmm import HMM
from seqmodels.neural import TransformerSeq2Seq
from seqmodels.observations import Categorical, GaussianMixture, Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Measure


def vectors(*lengths: int, size: int = 2, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(3.0, 2.0, (n, size)) for n in lengths]


def learn(data: Data, encoding: Encoding, observation: Observation | None = None) -> Setting:
    emitted = GaussianMixture() if data.X.kind == "vectors" else Categorical()
    return Setting.learn(data, Choices(encoding, emitted if observation is None else observation, "given"))


@pytest.mark.parametrize(
    ("items", "encoding", "measure"),
    [
        (vectors(4, 3), Standardize(), Measure("R^2", "frame", "given", "exact", False)),
        (["ab"], Bytes(), Measure("text", "byte", "given", "exact", False)),
        (["ab"], Characters(), Measure("text", "byte", "given", "bound", False)),
        (["ab"], BPE(n_symbols=256), Measure("text", "byte", "given", "bound", False)),
        ([[0, 1]], Symbols(), Measure("symbols", "symbol", "given", "exact", False)),
    ],
)
def test_what_is_measured(items: list[Any], encoding: Encoding, measure: Measure) -> None:
    setting = learn(Data.of(items), encoding)
    assert setting.measure == measure
    assert setting.encoding is not encoding  # the user's object stays unfitted
    assert not hasattr(encoding, "size")


def test_default_encodings_read_their_kind() -> None:
    kinds: list[Kind] = ["vectors", "text", "symbols"]
    assert [default_encoding(kind).reads for kind in kinds] == kinds


def test_the_encoding_learns_from_sources_and_targets() -> None:
    x, y = vectors(50, seed=1), vectors(30, seed=2)
    setting = learn(Data.of(x, y), Standardize())
    assert setting.measure.conditional
    np.testing.assert_allclose(setting.encoding.affine()[0], np.concatenate([x[0], y[0]]).mean(0))


def test_sources_of_another_kind_have_an_encoding_of_their_own() -> None:
    x, y = vectors(50, seed=1), [[0, 4]]
    setting = Setting.learn(Data.of(x, y), Choices(Symbols(), Categorical(), "given", Standardize()))
    assert setting.source_encoding is not None
    assert setting.encoding.size == 5
    np.testing.assert_allclose(setting.source_encoding.affine()[0], x[0].mean(0))
    (example,) = setting.examples(Data.of(x, y))
    assert example.source is not None
    assert abs(example.source.mean()) < 1e-12
    np.testing.assert_array_equal(example.values, [0, 4])


def test_ignored_sources_are_neither_read_nor_checked() -> None:
    data = Data.of([np.full((3, 1), np.nan)], [[1, 0]])
    setting = Setting.learn(data, Choices(Symbols(), Categorical(), "given", "ignored"))
    setting.check(data, missing_is_summed_out=False)
    assert setting.measure.conditional
    assert setting.examples(data)[0].source is None


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ValueError, match=re.escape("the source_encoding Symbols() reads symbols but the sequences are text")
    ):
        Setting.learn(Data.of(["a"], [[1]]), Choices(Symbols(), Categorical(), "given", Symbols()))
    with pytest.raises(ValueError, match=re.escape("the encoding Bytes() reads text but the sequences are symbols")):
        learn(Data.of([[1]]), Bytes())
    with pytest.raises(
        ValueError, match=r"the observation GaussianMixture\(\) emits vectors but the sequences are text"
    ):
        learn(Data.of(["a"]), Bytes(), GaussianMixture())


def test_check_names_sequence_and_frame() -> None:
    fitted = vectors(5, 5)
    setting = learn(Data.of(fitted), Standardize())
    holed = vectors(4, 4)
    holed[1][2, 1] = np.nan
    setting.check(Data.of(holed), missing_is_summed_out=True)
    with pytest.raises(ValueError, match="sequence 1 of X has a NaN at frame 2"):
        setting.check(Data.of(holed), missing_is_summed_out=False)
    with pytest.raises(ValueError, match="sequence 1 of y has a NaN at frame 2"):
        setting.check(Data.of(fitted, holed), missing_is_summed_out=False)
    with pytest.raises(ValueError, match="the model was fitted on vectors but got text"):
        setting.check(Data.of(["a"]), missing_is_summed_out=True)
    with pytest.raises(ValueError, match="sequence 0 has 3 features but the model was fitted on 2"):
        setting.check(Data.of(vectors(2, size=3)), missing_is_summed_out=True)


def test_examples_carry_log_determinants_units_and_weights() -> None:
    x = vectors(6, 4)
    x[1][0, 0] = np.nan
    setting = learn(Data.of(x), Standardize())
    scale = setting.encoding.affine()[1]
    first, second = setting.examples(Data.of(x, weights=[1.0, 0.5]))
    np.testing.assert_allclose(first.values, (x[0] - setting.encoding.affine()[0]) / scale)
    assert first.log_det == pytest.approx(-6 * np.log(scale).sum())
    assert second.log_det == pytest.approx(-4 * np.log(scale).sum() + np.log(scale[0]))
    assert (first.n_units, second.n_units, first.weight, second.weight) == (6, 4, 1.0, 0.5)
    assert first.source is None


def test_examples_with_targets_score_the_target_in_its_own_units() -> None:
    (example,) = learn(Data.of(["abc"], ["né"]), Characters()).examples(Data.of(["abc"], ["né"]))
    assert example.source is not None
    assert (len(example.source), len(example.values), example.n_units, example.log_det) == (3, 2, 3, 0.0)


def test_a_model_without_an_encoder_says_what_to_do_about_sources_of_another_kind() -> None:
    with pytest.raises(ValueError, match="X is 1-dimensional vectors but y is symbols, and this HMM reads them alike"):
        HMM(2).fit([np.zeros((3, 1))], [[0, 1]])
    with pytest.raises(TypeError, match="HMM has no argument 'source_encoding'"):
        HMM(2, source_encoding=Symbols())


def test_a_model_that_ties_embeddings_says_that_it_takes_no_encoding_of_sources() -> None:
    tied = TransformerSeq2Seq(source_encoding=Characters()).set_params(architecture__tie_embeddings=True)
    with pytest.raises(
        ValueError, match=r"source_encoding is Characters\(\), but this TransformerSeq2Seq reads sources"
    ):
        tied.fit(["ab"], ["ba"])


def test_an_ignored_source_leaves_the_model_of_targets_alone() -> None:
    y = [[0, 1, 1], [1, 0]]
    alone = HMM(2, max_iter=3).fit(y)
    ignoring = HMM(2, max_iter=3, ignore_source=True).fit(["a", "b"], y)
    np.testing.assert_allclose(ignoring.log_prob(["c", "d"], y), alone.log_prob(y), rtol=1e-6)
