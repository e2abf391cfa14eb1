"""distinct_warnings: each warning once, under the caller's own filters."""

import warnings

import pytest

from seqmodels.common.distinct_warnings import distinct_warnings


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    with warnings.catch_warnings():  # which makes Python forget what it has shown
        warnings.simplefilter("default")
    warnings.warn(text, category, stacklevel=2)


def test_warnings_that_differ_in_more_than_percentages_are_all_given() -> None:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("default")
        for _ in range(2):
            with distinct_warnings():
                for text in ("79% of 5 are copies", "83 % of 5 are copies", "83% of 6 are copies"):
                    warn(text)
                warn("79% of 5 are copies", FutureWarning)
    texts = ["79% of 5 are copies", "83 % of 5 are copies", "83% of 6 are copies", "79% of 5 are copies"]
    assert [str(each.message) for each in given] == 2 * [texts[0], *texts[2:]]
    assert {each.filename for each in given} == {__file__}


def test_filters_of_the_caller_hold() -> None:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("ignore")
        with distinct_warnings():
            warn("a")
    assert given == []
    shown = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="a"), distinct_warnings():
            warn("a")
    assert warnings.showwarning is shown
