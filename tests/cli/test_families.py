"""Models by name, and their hyperparameters as words."""

import seqmodels as sm
from seqmodels.cli.families import NAMES, complete, model_of, parsed


def test_every_name_is_a_model():
    for name in NAMES:
        assert isinstance(model_of(name, [], 7), sm.SequenceModel)
        assert model_of(name, [], 7).random_state == 7
    assert isinstance(model_of("LSTMTagger", [], 0), sm.LSTMTagger)


def test_the_shell_completes_them():
    assert complete("t") == ["transformer", "transformer-seq2seq"]
    assert complete("") == list(NAMES)


def test_values_are_toml_and_words_need_no_quotes():
    assert parsed("norm_type=rms") == ("norm_type", "rms")
    assert parsed("lr = 1e-3") == ("lr", 0.001)
    assert parsed("tied=[0, 0, 1]") == ("tied", [0, 0, 1])
    assert parsed("verbose=True") == ("verbose", True)
    assert parsed("a=b=c") == ("a", "b=c")
    model = model_of("hmm", ["observation__covariance_type=full", 'observation={class="GaussianMixture"}'], 0)
    assert model.observation.covariance_type == "full"
    seeded = model_of("seq2seq", ["random_state=3", "attention=none"], 0)
    assert (seeded.random_state, seeded.attention) == (3, None)
