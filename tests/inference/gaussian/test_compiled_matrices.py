"""Linear algebra of small matrices as loops, held to numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from seqmodels.inference.gaussian import compiled_matrices as matrices


@pytest.mark.parametrize("small", [1.0, 1e-9, 1e-140])
def test_triangular_factors_have_the_same_squares(small: float) -> None:
    rng = np.random.default_rng(0)
    block = rng.normal(size=(9, 5))
    block[1:, 0] *= small
    block[:, 3] = block[:, 1]  # of a column that another one spans
    for upper in (matrices.triangular(block), matrices._triangular_by_lapack(block)):
        np.testing.assert_array_equal(upper, np.triu(upper))
        np.testing.assert_allclose(upper.T @ upper, block.T @ block, rtol=1e-13, atol=1e-14)
    invertible = np.triu(rng.normal(size=(5, 5))) + 3 * np.eye(5)
    for inverse in (matrices.inverse_of_upper(invertible), matrices._inverse_by_lapack(invertible)):
        np.testing.assert_allclose(inverse @ invertible, np.eye(5), atol=1e-13)


def test_parts_of_matrices_are_copied_and_added() -> None:
    source = np.random.default_rng(0).normal(size=(4, 6))
    for copy, take_part, set_part, add_scaled in (
        (matrices.copy, matrices.take_part, matrices.set_part, matrices.add_scaled),
        (matrices._copy_at_once, matrices._take_part_at_once, matrices._set_part_at_once, matrices._add_scaled_at_once),
    ):
        part, target = np.empty((2, 3)), np.ones((5, 5))
        take_part(source, 1, 2, part)
        np.testing.assert_array_equal(part, source[1:3, 2:5])
        set_part(target, 2, 1, part)
        add_scaled(-2.0, source[:2, :2], target[:2, 3:])
        expected = np.ones((5, 5))
        expected[2:4, 1:4] = source[1:3, 2:5]
        expected[:2, 3:] -= 2 * source[:2, :2]
        np.testing.assert_array_equal(target, expected)
        copy(part, target[:2, :3])
        np.testing.assert_array_equal(target[:2, :3], source[1:3, 2:5])


def test_one_element_off_the_diagonal_is_enough() -> None:
    matrix = np.diag([1.0, 0.0, 3.0])
    assert matrices.is_diagonal(matrix)
    for element in ((0, 2), (2, 1)):
        other = matrix.copy()
        other[element] = 1e-300
        assert not matrices.is_diagonal(other)


@pytest.mark.parametrize("kind", ["invertible", "one direction", "zero"])
def test_regressions_on_variables_of_any_units(kind: str) -> None:
    rng, units = np.random.default_rng(0), np.array([1e-8, 1.0, 1e8])
    rows = rng.normal(size=(7, 3))
    if kind == "one direction":
        rows = rows[:, :1] * [2.0, 1.0, -3.0]
    upper = np.linalg.qr({"zero": 0.0}.get(kind, 1.0) * rows)[1]
    product, target = upper @ rng.normal(size=(3, 2)), np.empty((3, 2))
    matrices.set_to_regression(upper * units, product, target)
    scale = np.maximum(np.sqrt((upper**2).sum(0)), kind == "zero")
    expected = (
        np.linalg.pinv(upper / scale, rcond=1e-13) @ product / np.outer(scale * units ** (kind != "zero"), [1, 1])
    )
    np.testing.assert_allclose(target, expected, rtol=1e-10, atol=1e-300)


def test_the_mean_with_the_transpose_is_symmetric() -> None:
    matrix = np.random.default_rng(0).normal(size=(4, 4))
    transposed, symmetric = np.empty((4, 4)), matrix.copy()
    for set_to_transpose in (matrices.set_to_transpose, matrices._set_to_transpose_at_once):
        set_to_transpose(matrix, transposed)
        np.testing.assert_array_equal(transposed, matrix.T)
    matrices.make_symmetric(symmetric)
    np.testing.assert_allclose(symmetric, 0.5 * (matrix + matrix.T), rtol=1e-15)
