"""Prequential code lengths: sums of what each block costs after those before it, for every kind of data."""

import math

import numpy as np
import pytest
from matplotlib import pyplot

import seqmodels as sm
from seqmodels.evaluation.comparison.report import curves
from seqmodels.evaluation.prequential import _Density
from seqmodels.observations import Gamma, ZeroInflated

LOG_2 = math.log(2)


def symbols(rng, n=40):
    return [np.cumsum(rng.random(int(rng.integers(5, 30))) < 0.3) % 4 for _ in range(n)]


def test_blocks_are_coded_by_what_came_before():
    x = symbols(np.random.default_rng(0))
    model = sm.NGram(2, encoding=sm.Symbols(4))
    code = sm.prequential(model, x, blocks=4)
    n_units = np.array([len(item) for item in x])
    at = np.cumsum(code.frame["n_units"])
    assert at.iloc[-1] == n_units.sum()
    assert code.frame["n_before"].tolist() == [0, *at[:-1]]
    assert code.frame["n_units"].iloc[-1] == pytest.approx(n_units.sum() / 2, rel=0.15)
    edges = np.searchsorted(np.cumsum(n_units), at)
    first = edges[0] + 1
    assert code.frame["nats"].iloc[0] == pytest.approx(
        (n_units[:first].sum() + first) * math.log(5)
    )  # four and the end
    for row, (start, stop) in enumerate(zip(edges[:-1] + 1, edges[1:] + 1, strict=True), 1):
        fitted = sm.NGram(2, encoding=sm.Symbols(4)).fit(x[:start])
        expected = fitted.log_prob(x[start:stop]).sum()
        assert code.frame["model_nats"].iloc[row] == pytest.approx(-expected, abs=1e-9)
        reference = (n_units[start:stop].sum() + stop - start) * math.log(5)
        mixed = -np.logaddexp(expected - LOG_2, -reference - LOG_2)
        assert code.frame["nats"].iloc[row] == pytest.approx(mixed, abs=1e-9)
    assert code.nats == pytest.approx(code.frame["nats"].sum())
    assert not model.__sklearn_is_fitted__()


def test_one_text_is_cut_into_steps_each_after_all_before_it():
    text = "the cat säß on the mat. " * 30
    code = sm.prequential(sm.NGram(3), [text], blocks=3)
    cut = [len(text[:stop].encode()) for stop in (len(text) // 4, len(text) // 2)]
    n = len(text.encode())
    assert code.frame["n_units"].sum() == n
    for row, stop in ((1, cut[1]), (2, n + 1)):
        start = int(code.frame["n_before"].iloc[row])
        assert abs(start - cut[row - 1]) <= 2
        before = text.encode()[:start].decode()
        steps = sm.NGram(3).fit([before]).log_prob_steps([text])[0]
        end = min(start + int(code.frame["n_units"].iloc[row]), stop) + (row == 2)
        assert code.frame["model_nats"].iloc[row] == pytest.approx(-steps[start:end].sum(), abs=1e-9)
    assert code.frame["nats"].iloc[0] == pytest.approx(code.frame["n_units"].iloc[0] * math.log(257))


def test_vectors_bits_and_counts():
    rng = np.random.default_rng(1)
    walks = [rng.normal(size=(20, 2)).cumsum(0) for _ in range(16)]
    code = sm.prequential(
        sm.HMM(1, observation=sm.AutoregressiveGaussian()), walks, blocks=4, reference=(1.0, [2.0, 3.0])
    )
    z = (np.concatenate(walks[:2]) - 1) / [2, 3]
    expected = (0.5 * z**2 + 0.5 * math.log(2 * math.pi)).sum() + 40 * math.log(6)
    assert code.frame["reference_nats"].iloc[0] == pytest.approx(expected)
    assert code.nats < code.frame["reference_nats"].sum()
    bits = [(rng.random((10, 3)) < 0.1).astype(float) for _ in range(16)]
    code = sm.prequential(sm.HMM(1, observation=sm.Bernoulli()), bits, blocks=3)
    assert code.frame["reference_nats"].sum() == pytest.approx(160 * 3 * LOG_2)
    assert code.nats < 160 * 3 * LOG_2
    counts = [rng.poisson(3, (10, 1)).astype(float) for _ in range(16)]
    code = sm.prequential(sm.HMM(1, observation=sm.Poisson()), counts, blocks=3)
    mean = np.concatenate(counts).mean()
    k = np.concatenate(counts).sum()
    assert code.frame["reference_nats"].sum() == pytest.approx(
        -(k * math.log(mean / (1 + mean)) - 160 * math.log(1 + mean))
    )


@pytest.mark.parametrize("observation", [Gamma(), ZeroInflated(Gamma())], ids=repr)
def test_the_reference_of_positive_values_and_amounts_is_a_density(observation):
    rng, space = np.random.default_rng(0), observation.values(1)
    x = [rng.gamma(2.0, 3.0, (20, 1)) * (rng.random((20, 1)) < 0.6 if space == ("amounts",) else 1.0) for _ in range(8)]
    code = sm.prequential(sm.HMM(1, observation=observation, max_iter=2), x, blocks=2)
    values = np.concatenate(x)
    reference = _Density(space, values.mean(0), values.std(0))
    assert code.frame["reference_nats"].sum() == pytest.approx(-reference.log_prob(values))
    grid, at_zero = np.linspace(-60.0, 100.0, 4_001), 0.0
    if space == ("amounts",):
        grid, at_zero = np.linspace(1e-9, 100.0, 4_001), math.exp(reference.log_prob(np.zeros((1, 1))))
    density = np.exp([reference.log_prob(np.array([[v]])) for v in grid])
    assert at_zero + np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)


def test_a_fit_that_fails_or_rules_out_what_comes_is_no_infinite_code():
    x = [np.array([0, 0, 0])] * 4 + [np.array([1, 2, 1])] * 4
    model = sm.HMM(1, observation=sm.Categorical(pseudocount=0.0), length="given")
    code = sm.prequential(model, x, blocks=3)
    assert code.frame["model_nats"].tolist()[1:] == [pytest.approx(0.0, abs=1e-6), math.inf]
    assert code.frame["nats"].tolist()[1:] == [
        pytest.approx(-math.log((1 + 3.0**-6) / 2)),
        pytest.approx(12 * math.log(3) + LOG_2),
    ]
    alike = [np.ones((4, 1))] * 2 + [np.random.default_rng(0).normal(size=(9, 1)) for _ in range(20)]
    code = sm.prequential(sm.HMM(1), alike, blocks=6)
    assert "constant" in code.frame["error"].iloc[1]
    assert code.frame["nats"].iloc[1] == code.frame["reference_nats"].iloc[1]
    assert math.isfinite(code.nats)


def test_pairs_are_coded_given_their_sources():
    rng = np.random.default_rng(2)
    x = [rng.integers(0, 3, 8) for _ in range(40)]
    code = sm.prequential(sm.HMMTagger(), x, [(item + 1) % 3 for item in x], blocks=4)
    assert code.nats_per_unit < 0.5 * math.log(3)  # what the tag is follows from the symbol
    assert code.frame["reference_nats"].sum() == pytest.approx(320 * math.log(3))


def test_several_models_are_coded_alike_and_drawn():
    x = symbols(np.random.default_rng(3), 60)
    models = {"iid": sm.HMM(1), "gram": sm.NGram(2)}
    codes = sm.evaluation.prequential_code_lengths(models, x, blocks=4)
    assert codes.frame["model"].tolist() == ["gram", "iid"]
    assert codes.frame["difference"].iloc[0] == 0
    for row in codes.frame.itertuples():
        assert row.nats == pytest.approx(sm.prequential(models[row.model], x, blocks=4).nats, abs=1e-9)
        assert row.bits == pytest.approx(row.nats / LOG_2)
    axes = codes.plot()
    drawn = [line for line in axes.lines if line.get_gid() == "blocks"]
    assert [line.get_ydata().tolist() for line in drawn] == [
        codes.blocks.query("model == @name and n_before > 0")["nats_per_unit"].tolist() for name in ("gram", "iid")
    ]
    _, mine = pyplot.subplots()
    assert codes.plot(mine) is mine
    pyplot.close("all")


def test_blocks_of_less_than_a_unit_are_none():
    many = sm.prequential(sm.NGram(2), ["ab" * 50], blocks=10**9)
    assert many.nats == sm.prequential(sm.NGram(2), ["ab" * 50], blocks=20).nats


def test_arguments():
    with pytest.raises(ValueError, match="at least 2"):
        sm.prequential(sm.NGram(2), ["abc"] * 4, blocks=1)
    with pytest.raises(ValueError, match="too short"):
        sm.prequential(sm.NGram(2), ["a"])
    with pytest.raises(ValueError, match="there are no models"):
        sm.evaluation.prequential_code_lengths({}, ["abc"] * 4)
    with pytest.raises(ValueError, match="standard deviation above zero"):
        sm.prequential(sm.HMM(1), [np.random.default_rng(0).normal(size=(9, 1)) for _ in range(8)], reference=(0, 0))
    with pytest.raises(sm.IncomparableError):
        sm.evaluation.prequential_code_lengths({"a": sm.HMM(1), "b": sm.HMM(1, length="given")}, ["abc"] * 8)


def test_a_comparison_has_code_lengths_beside_scores(tmp_path):
    x = symbols(np.random.default_rng(3), n=60)
    train, test = x[:40], x[40:]
    models = {"bigram": sm.NGram(2), "tree": sm.ContextTree(2), "hmm": sm.HMM(2, max_iter=3, n_init=1)}
    result = sm.compare(models, train, test=test, prequential=4, validation=None)
    names = ["bigram", "tree", "hmm", "iid"]
    expected = {
        name: sm.prequential(result.models[name], train, blocks=4, validation=None).nats_per_unit for name in names
    }
    assert dict(zip(result.frame["model"], result.frame["code_length"], strict=True)) == pytest.approx(expected)
    assert result.code_lengths.blocks["model"].value_counts().to_dict() == dict.fromkeys(names, 4)
    assert "code length" in result.table()
    assert "coded from nothing" in result.how_to_read()
    result.save(tmp_path / "saved")
    loaded = sm.evaluation.Comparison.load(tmp_path / "saved")
    assert loaded.code_lengths.blocks.equals(result.code_lengths.blocks)
    assert loaded.code_lengths.frame.equals(result.code_lengths.frame)
    axes = loaded.plot_code_lengths()
    assert "symbols before the block" in axes.get_xlabel()
    pyplot.close("all")
    section = curves.code_lengths(loaded)
    assert section.title == "Code lengths, from nothing"
    assert f"bigram {expected['bigram']:.3f}" in str(section.body)
    assert "data:image/" in str(section.body)


def test_code_lengths_of_a_comparison_that_cannot_be():
    x = symbols(np.random.default_rng(4), n=12)
    fitted = {"a": sm.NGram(2).fit(x)}
    with pytest.raises(ValueError, match="prequential codes the training part, and there is none"):
        sm.compare(fitted, x, prequential=True)
    with pytest.raises(ValueError, match="prequential is 1; pass True"):
        sm.compare(fitted, x[:8], test=x[8:], prequential=1)
    plain = sm.compare({"a": sm.NGram(2), "b": sm.NGram(1)}, x[:6], test=x[6:], validation=None, iid=False)
    assert "code_length" not in plain.frame
    assert curves.code_lengths(plain) is None
    with pytest.raises(ValueError, match="pass prequential=True to compare"):
        plain.plot_code_lengths()
