"""Power laws: found where they are, with intervals that cover, and drawn."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

from seqmodels.evaluation.scaling import fit_power_law, plot_power_laws, power_laws

N = np.geomspace(100, 1e5, 8)


def test_an_exact_law_is_found():
    law = fit_power_law(N, -1.5 - 4 * N**-0.4)
    assert (law.a, law.b, law.c) == pytest.approx((-4, 0.4, -1.5), rel=1e-4)
    assert law.b_low == pytest.approx(0.4, abs=1e-3)
    assert law.b_high == pytest.approx(0.4, abs=1e-3)
    assert law.predict([1e8]) == pytest.approx([-1.5 - 4 * 1e8**-0.4], abs=1e-4)


def test_the_unit_of_n_does_not_matter():
    score = -1.5 - 4 * N**-0.4 + 0.01 * np.random.default_rng(0).normal(size=8)
    one, other = fit_power_law(N, score), fit_power_law(N / 1e9, score)
    assert (other.b, other.c, other.b_low, other.b_high) == pytest.approx(
        (one.b, one.c, one.b_low, one.b_high), rel=1e-6
    )


@pytest.mark.parametrize("b", [0.15, 0.4, 1.0])
def test_intervals_cover(b):
    rng = np.random.default_rng(1)
    laws = [fit_power_law(N, -1.5 - 4 * (N / 100) ** -b + 0.05 * rng.normal(size=8)) for _ in range(200)]
    assert 0.9 < np.mean([law.b_low <= b <= law.b_high for law in laws]) < 0.99
    assert 0.9 < np.mean([law.c_low <= -1.5 <= law.c_high for law in laws]) < 0.99


def test_what_the_points_do_not_bound_has_no_bound():
    law = fit_power_law(N, 0.1 * np.random.default_rng(3).normal(size=8))
    assert (law.b_low, law.b_high) == (0.0, np.inf)
    assert (law.c_low, law.c_high) == (-np.inf, np.inf)


def test_arguments():
    with pytest.raises(ValueError, match="4 points or more"):
        fit_power_law([1, 2, 3], [1, 2, 3])
    with pytest.raises(ValueError, match="three different n"):
        fit_power_law([1, 2, 2, 1], [1, 2, 3, 4])
    with pytest.raises(ValueError, match="n above zero"):
        fit_power_law([0, 1, 2, 3], [1, 2, 3, 4])
    frame = pd.DataFrame({"model": "gram", "n": [1, 2, 3], "score": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="model 'gram': n and score"):
        power_laws(frame)
    with pytest.raises(ValueError, match="no column 'size'"):
        power_laws(frame, x="size")


def test_a_frame_of_several_models_is_fitted_and_drawn():
    rng = np.random.default_rng(2)
    parts = [("a", 4, 0.5), ("b", 8, 0.25)]
    rows = [
        pd.DataFrame({"model": m, "n": N, "score": -1 - a * N**-b + 0.002 * rng.normal(size=8)}) for m, a, b in parts
    ]
    few = pd.DataFrame({"model": "few", "n": [100, 200], "score": [-2.0, -1.9]})
    frame = pd.concat([*rows, few], ignore_index=True)
    laws = power_laws(frame[frame["model"] != "few"]).set_index("model")
    assert laws["b"].to_dict() == pytest.approx({"a": 0.5, "b": 0.25}, abs=0.05)
    axes = plot_power_laws(frame, unit="byte")
    lines = {gid: [line for line in axes.lines if line.get_gid() == gid] for gid in ("points", "law")}
    assert (len(lines["points"]), len(lines["law"])) == (3, 2)
    x, y = lines["law"][0].get_data()
    np.testing.assert_allclose(y, laws.loc["a", "c"] + laws.loc["a", "a"] * np.asarray(x) ** -laws.loc["a", "b"])
    assert any(text.get_text().startswith("a, b 0.") for text in axes.texts)
    assert "byte" in axes.get_ylabel()
    _, mine = pyplot.subplots()
    assert plot_power_laws(frame, ax=mine) is mine
    pyplot.close("all")
