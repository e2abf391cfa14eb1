from __future__ import annotations

import numpy as np
import pytest

from seqmodels.training import Cosine, Trapezoid


def test_a_trapezoid_rises_holds_and_falls_to_zero() -> None:
    rates = np.array([Trapezoid().at(p) for p in np.linspace(0, 1, 1001)])
    assert rates[0] > 0
    assert (np.diff(rates[:30]) > 0).all()
    assert rates[30:401] == pytest.approx(1.0)
    np.testing.assert_allclose(rates[400:], np.linspace(1, 0, 601), atol=1e-12)
    assert Trapezoid().at(1.5) == 0.0
    assert Trapezoid(final=0.2).at(1.0) == pytest.approx(0.2)


def test_a_cosine_falls_along_half_a_wave() -> None:
    schedule = Cosine(warm_up=0.2, final=0.0)
    assert schedule.at(0.2) == pytest.approx(1.0)
    assert schedule.at(0.6) == pytest.approx(0.5)
    assert schedule.at(1.0) == pytest.approx(0.0)
    assert 0 < schedule.at(0.0) < 0.05
