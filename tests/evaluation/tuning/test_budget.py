"""Budget: what each family is held to, and what it is left."""

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.tuning.budget import within_budget


@pytest.fixture(scope="module")
def symbols():
    x, _ = sm.data.hmm_draws(40, 12, n_states=3, n_symbols=4, random_state=0)
    return x


def test_seconds_are_the_only_limit_of_a_network_and_of_em():
    budget = sm.Budget(seconds=60)
    assert budget.settings(sm.LSTM(max_steps=5)) == {"max_steps": None, "max_epochs": None, "max_seconds": 60}
    of_hmm = budget.settings(sm.HMM(2, max_iter=5))
    assert of_hmm["max_seconds"] == 60
    assert of_hmm["max_iter"] > 1000
    assert budget.settings(sm.HMM(2, algorithm="gradient")) == {"max_seconds": 60}
    assert budget.settings(sm.NGram()) == {}
    assert budget.settings(sm.HMMTagger()) == {}


def test_steps_are_of_the_optimiser_or_of_em():
    budget = sm.Budget(steps=7)
    assert budget.settings(sm.Transformer(max_seconds=3))["max_steps"] == 7
    assert budget.settings(sm.Transformer(max_seconds=3))["max_seconds"] is None
    assert budget.settings(sm.HMM(2)) == {"max_iter": 7}
    assert budget.settings(sm.AlignmentHMM()) == {"max_iter": 7}


def test_steps_and_seconds_together_end_by_whichever_comes_first():
    both = sm.Budget(seconds=60, steps=7)
    assert both.settings(sm.GRU()) == {"max_steps": 7, "max_epochs": None, "max_seconds": 60}
    assert both.settings(sm.HMM(2)) == {"max_iter": 7, "max_seconds": 60}


@pytest.mark.parametrize(
    ("model", "most", "step"),
    [
        (sm.HMM(2, max_iter=1), 100, 1),
        (sm.LSTM(max_steps=1), 4000, 8),
        (sm.Transformer(max_steps=1, context=8, n_heads=3), 40_000, 24),
    ],
    ids=["hmm", "lstm", "transformer"],
)
def test_the_largest_model_within_the_budget_is_chosen_and_is_as_large_when_fitted(symbols, model, most, step):
    (knob, size), *_ = sm.Budget(parameters=most).settings(model, Data.of(symbols)).items()
    assert size % step == 0
    assert model.clone().set_params(**{knob: size}).fit(symbols).n_parameters_ <= most
    assert model.clone().set_params(**{knob: size + step}).fit(symbols).n_parameters_ > most


def test_parameters_of_vectors_and_of_targets_are_counted_as_they_will_be():
    x, _ = sm.data.hmm_draws(12, 10, n_states=2, n_features=2, random_state=0)
    chosen = sm.Budget(parameters=200).settings(sm.HMM(2), Data.of(x))["n_states"]
    sizes = [sm.HMM(k, max_iter=0).fit(x).n_parameters_ for k in (chosen, chosen + 1)]
    assert sizes[0] <= 200 < sizes[1]
    source, target = x.continuation(4)
    width = sm.Budget(parameters=9000).settings(sm.LSTMSeq2Seq(), Data.of(source, target))["d_model"]
    sizes = [sm.LSTMSeq2Seq(d_model=d, max_steps=1).fit(source, target).n_parameters_ for d in (width, width + 8)]
    assert sizes[0] <= 9000 < sizes[1]


def test_a_budget_in_parameters_leaves_alone_what_has_no_size_to_choose(symbols):
    assert sm.Budget(parameters=100).settings(sm.NGram(), Data.of(symbols)) == {}
    assert sm.Budget(parameters=100).settings(sm.HMM(1), Data.of(symbols)) == {}


def test_a_model_that_is_too_large_at_its_smallest_says_so(symbols):
    with pytest.raises(ValueError, match=r"with d_model=8, has [\d,]+ parameters already; the budget is 50"):
        sm.Budget(parameters=50).settings(sm.LSTM(), Data.of(symbols))


def test_a_budget_without_a_limit_or_below_zero_is_refused():
    with pytest.raises(ValueError, match="pass seconds, steps or parameters"):
        sm.Budget()
    with pytest.raises(ValueError, match="steps of the budget is 0"):
        sm.Budget(steps=0)


def test_time_that_is_over_ends_em_after_its_step():
    x = [np.random.default_rng(0).normal(size=(1200, 3))]
    model = sm.HMM(6, tol=0.0, n_init=1)
    model.set_params(**sm.Budget(seconds=0.05).settings(model)).fit(x)
    assert not model.converged_
    seconds = model.history_["seconds"].to_numpy()
    assert seconds[-1] > 0.05
    assert (seconds[:-1] <= 0.05).all()


def test_a_budget_takes_the_place_of_the_models_own():
    assert within_budget(sm.LSTM(max_steps=800)).max_steps == 800
    by_time = within_budget(sm.LSTM(max_steps=800, max_epochs=2), seconds=3.0)
    assert (by_time.max_steps, by_time.max_epochs, by_time.max_seconds) == (None, None, 3.0)
    by_steps = within_budget(sm.LSTM(max_seconds=9), steps=5)
    assert (by_steps.max_steps, by_steps.max_seconds) == (5, None)
    em = within_budget(sm.HMM(2, max_iter=3), seconds=3.0)
    assert em.max_seconds == 3.0
    assert em.max_iter > 10_000
    assert within_budget(sm.HMM(2, algorithm="gradient", max_iter=30), seconds=3.0).max_iter == 30
    assert within_budget(sm.HMM(2), steps=7).max_iter == 7
    assert within_budget(sm.AlignmentHMM(max_iter=3), seconds=2.0).max_iter == 3  # it has no limit of time
    assert repr(within_budget(sm.NGram(3), seconds=1.0, steps=4)) == repr(sm.NGram(3))
    with pytest.raises(ValueError, match="steps of the budget is 0"):
        within_budget(sm.HMM(2), steps=0)
