from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from seqmodels.sequences import Sequences, as_sequences
from seqmodels.sequences.sequences import items_of_both


def vectors(*lengths: int, size: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n, size)) for n in lengths]


def same(left: Sequences, right: list[Any]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# -- what is accepted ------------------------------------------------------------------------------------------


def test_kinds_units_and_lengths() -> None:
    for items, kind, unit, n_units, n_features in [
        (vectors(3, 2), "vectors", "frame", [3, 2], 2),
        (["é", "abc"], "text", "byte", [2, 3], 1),
        ([[0, 1, 2], [5]], "symbols", "symbol", [3, 1], 1),
    ]:
        x = Sequences(items)  # type: ignore[arg-type]
        assert (x.kind, x.unit, x.n_units.tolist(), x.n_features) == (kind, unit, n_units, n_features)


def test_as_sequences_hands_sequences_on() -> None:
    x = Sequences(["a"])
    assert as_sequences(x) is x
    assert as_sequences(["a"]).kind == "text"


def test_repr() -> None:
    assert repr(Sequences(["né"])) == "Sequences(1 of text, 3 bytes)"
    assert repr(Sequences(vectors(2, 3))) == "Sequences(2 of 2-dimensional vectors, 5 frames)"


# -- what is refused -------------------------------------------------------------------------------------------

good = np.zeros((2, 2))
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Sequences([good], names=["a", "b"]), "there are 2 names but 1 sequences"),
    (lambda: Sequences([good], clusters=[]), "there are 0 clusters but 1 sequences"),
    (lambda: Sequences([good], metadata=pd.DataFrame({"a": [1, 2]})), "metadata has 2 rows but there are 1 sequences"),
    (lambda: Sequences.from_lengths(np.zeros((3, 1)), [1, 1]), "lengths sum to 2 but X has 3 rows"),
    (lambda: Sequences.from_lengths(np.array(3.0), [1]), "X has no rows"),
    (lambda: Sequences.from_padded(np.zeros(3), [3, 1, 1]), "the padded array has shape (3,)"),
    (lambda: Sequences.from_padded(np.zeros((2, 3, 1)), [3]), "there are 2 padded sequences but 1 lengths"),
    (lambda: Sequences.from_padded(np.zeros((2, 3, 1)), [3, 4]), "sequence 1 has length 4 but the array holds 3"),
    (
        lambda: Sequences.from_frame(pd.DataFrame({"id": [1], "a": [1]}), by="id", columns=["b"]),
        "the frame has no column 'b'; it has id, a",
    ),
    (
        lambda: Sequences.from_frame(pd.DataFrame({"id": [1, None], "a": [1, 2]}), by="id", columns=["a"]),
        "row 1 of the frame belongs to no sequence: its 'id' is missing",
    ),
    (lambda: Sequences([good]).split(0), "test is 0; pass the fraction to hold out"),
    (lambda: Sequences([good, good]).split(by="speaker"), "there is no column 'speaker' to split by"),
    (lambda: Sequences([good, good], labels=[1, 1]).split(by="label"), "all sequences have the same 'label'"),
    (lambda: Sequences([[1]]).split(), "the one sequence is too short to split"),
    (lambda: Sequences(["abc"]).chunks(0), "length is 0; pass an integer from 1 on"),
    (lambda: Sequences(["abc"]).continuation(0), "context is 0; pass at least 1"),
    (lambda: Sequences(["abc"]).continuation(3), "no sequence is longer than context=3"),
    (lambda: Sequences(["abc"]).dithered(), "only vectors are dithered, these are text"),
    (lambda: Sequences(["abc"]).profile(), "only vectors have a profile by feature, these are text"),
    (lambda: Sequences([good]).dithered().dithered(), "these sequences are dithered already"),
    (lambda: Sequences([good]).dithered(like=Sequences([good])), "like is not dithered"),
    (
        lambda: Sequences([good]).dithered(like=Sequences([good[:, :1]]).dithered()),
        "like has 1 features but these sequences have 2",
    ),
    (lambda: Sequences([good], grid=[1.0]), "grid has 1 steps, one for each feature"),
    (lambda: Sequences([good], grid=[np.nan, 1]), "grid has nan for feature 0; a width of noise is finite"),
    (lambda: Sequences([good], grid=[1, np.inf]), "grid has inf for feature 1; a width of noise is finite"),
    (lambda: Sequences([good], grid=[1, -1]), "grid has -1.0 for feature 1; a width of noise is finite"),
    (lambda: Sequences([good], grid=["fine", 1]), "grid is ['fine', 1]; pass a width for each feature"),
    (
        lambda: Sequences([good, good, good], clusters=["a", None, "b"]).split(by="cluster"),
        "sequence 1 has no 'cluster' to split by; give it one",
    ),
    (lambda: Sequences(["ab"], symbols=["a"]), "symbols are named, but the sequences are text"),
    (lambda: Sequences([good], features=["a"]), "features are 1 names, but the sequences are Sequences(1 of 2-dim"),
    (lambda: Sequences(["ab"], features=["a"]), "features are 1 names, but the sequences are Sequences(1 of text"),
    (lambda: Sequences(["ab"], times=[[0, 1]]), "texts have no times"),
    (lambda: Sequences(["ab"]).to_frame(), "texts have no rows of steps"),
    (lambda: Sequences([good], features=["a", "b"], by="a").to_frame(), "two columns would be called 'a'"),
    (
        lambda: Sequences.from_frame(pd.DataFrame({"a": [1], "t": [None]}), columns=["a"], time="t"),
        "row 0 of the frame has no time: its 't' is missing",
    ),
    (
        lambda: Sequences.from_frame(pd.DataFrame({"a": [1, 2], "l": [0, 1]}), columns=["a"], label="l"),
        "'l' changes within the one sequence, so it cannot be its label",
    ),
    (
        lambda: Sequences.from_frame(pd.DataFrame({"a": [1, 2], "l": ["x", "y"]}), columns=["a", "l"]),
        "the column 'l' holds words, which cannot be a feature of vectors",
    ),
    (lambda: Sequences.from_frame(pd.DataFrame({"a": []}), columns=["a"]), "the frame has no rows"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refusals_name_the_sequence_and_the_place(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build()


# -- other forms of data -----------------------------------------------------------------------------------------


def test_lengths_and_padding_are_undone() -> None:
    items = vectors(3, 1, 2)
    same(Sequences.from_lengths(np.concatenate(items), [3, 1, 2], labels=["a", "b", "c"]), items)
    same(Sequences.from_lengths(np.arange(5), [2, 3]), [[0, 1], [2, 3, 4]])
    padded = np.full((3, 4, 2), np.inf)  # padding is never read
    for row, item in zip(padded, items, strict=True):
        row[: len(item)] = item
    same(Sequences.from_padded(padded, [3, 1, 2]), items)


def test_a_long_frame() -> None:
    frame = pd.DataFrame({"id": ["b", "a", "b", "a"], "t": [1, 1, 0, 0], "u": [1.0, 2.0, 3.0, 4.0], "s": [1, 2, 3, 4]})
    x = Sequences.from_frame(frame, by="id", columns=["u", "s"], time="t")
    assert x.names == ["b", "a"]
    same(x, [[[3.0, 3.0], [1.0, 1.0]], [[4.0, 4.0], [2.0, 2.0]]])
    assert Sequences.from_frame(frame.drop(columns="s"), by="id", time="t").features == ("u",)
    assert Sequences.from_frame(frame[["id", "s"]].astype({"s": str}), by="id").kind == "symbols"
    symbols = Sequences.from_frame(frame, by="id", columns="s")
    assert symbols.kind == "symbols"
    same(symbols, [[1, 3], [2, 4]])


def test_a_torch_dataset() -> None:
    data = torch.arange(6.0).reshape(3, 2, 1)
    tuples = torch.utils.data.TensorDataset(data, torch.zeros(3))
    same(Sequences.from_dataset(tuples, labels=[0, 1, 0]), list(data.numpy()))


# -- metadata, cutting -------------------------------------------------------------------------------------------


def test_take_and_slices_carry_metadata() -> None:
    frame = pd.DataFrame({"room": [1, 2, 3]}, index=[7, 8, 9])
    x = Sequences(["a", "b", "c"], names=["x", "y", "z"], labels=[0, 1, 0], clusters=["p", "q", "p"], metadata=frame)
    for part in (x.take([2, 0]), x.take(np.array([False, True, True])), x[1:]):
        rows = [list(x).index(item) for item in part]
        assert part.names == [x.names[i] for i in rows]
        assert part.labels == [[0, 1, 0][i] for i in rows]
        assert part.clusters == [["p", "q", "p"][i] for i in rows]
        assert part.metadata["room"].tolist() == [[1, 2, 3][i] for i in rows]
    assert Sequences(["a"]).names == [0]
    assert Sequences(["a"]).labels is None
    assert Sequences(["a"]).clusters is None


def test_split_is_random_by_seed_and_loses_nothing() -> None:
    x = Sequences([[i] for i in range(20)])
    train, test = x.split(0.25)
    assert (len(train), len(test)) == (15, 5)
    assert sorted(int(np.asarray(item)[0]) for part in (train, test) for item in part) == list(range(20))
    same(x.split(0.25)[1], list(test))
    assert list(map(tuple, x.split(0.25, random_state=1)[1])) != list(map(tuple, test))


def test_split_keeps_groups_whole() -> None:
    speakers = [i % 5 for i in range(40)]
    train, test = Sequences([[i] for i in range(40)], clusters=speakers).split(0.4, by="cluster")
    assert len(test) == 16
    assert set(train.clusters or []).isdisjoint(test.clusters or [])


def test_split_always_leaves_both_parts_something() -> None:
    x = Sequences([[0], [1], [2]])
    assert [len(part) for part in x.split(0.01)] == [2, 1]
    assert [len(part) for part in x.split(0.99)] == [1, 2]


def test_one_sequence_is_split_in_time() -> None:
    train, test = Sequences(["abcdefghij"], names=["book"]).split(0.3)
    assert (list(train), list(test), train.names, test.names) == (["abcdefg"], ["hij"], ["book"], ["book"])


def test_chunks_join_to_the_whole_and_stay_clustered() -> None:
    items = vectors(5, 3)
    chunks = Sequences(items, names=["a", "b"]).chunks(2)
    assert chunks.n_units.tolist() == [2, 2, 1, 2, 1]
    assert chunks.clusters == ["a", "a", "a", "b", "b"]
    np.testing.assert_array_equal(np.concatenate(list(map(np.asarray, chunks))), np.concatenate(items))
    assert Sequences(["abc", "d"], clusters=["s", "t"]).chunks(2).clusters == ["s", "s", "t"]
    assert Sequences(["abc"]).chunks(2).clusters is None  # one long sequence: blocks, not clusters


def test_continuation_pairs_beginnings_with_their_rests() -> None:
    x, y = Sequences(["abcd", "ab", "xyz"], names=[1, 2, 3]).continuation(2)
    assert (list(x), list(y), x.names, y.names) == (["ab", "xy"], ["cd", "z"], [1, 3], [1, 3])
    x, y = Sequences(["ab", "a"]).continuation(1)
    assert (list(x), list(y)) == (["a"], ["b"])


def test_dither_spreads_values_over_one_step_of_their_grid() -> None:
    rng = np.random.default_rng(0)
    grid = np.stack([rng.integers(0, 9, 4000) * 0.5, rng.integers(0, 9, 4000) * 8.0], axis=1)
    grid[3, 0] = np.nan
    x = Sequences([grid[:1000], grid[1000:]], names=["a", "b"])
    noisy = x.dithered()
    noise = np.concatenate(list(map(np.asarray, noisy))) - grid
    assert np.isnan(noise[3, 0])
    for column, step in zip(noise.T, [0.5, 8.0], strict=True):
        seen = column[~np.isnan(column)] / step
        assert np.abs(seen).max() <= 0.5
        assert seen.std() == pytest.approx(1 / np.sqrt(12), rel=0.05)
    assert noisy.names == ["a", "b"]
    same(x.dithered(), list(noisy))
    assert not np.array_equal(np.asarray(x.dithered(1)[1]), np.asarray(noisy[1]))


def test_the_grid_is_learned_once_and_no_two_parts_share_their_noise() -> None:
    """Two parts have different smallest gaps: the noise of each by its own would make two measures of one."""
    rng = np.random.default_rng(0)
    train = Sequences([rng.choice([0.0, 0.3, 1.3, 2.3], (500, 1))]).dithered()
    raw = rng.choice([0.0, 1.0, 2.0], (500, 1))
    test = Sequences([raw]).dithered(like=train)
    assert train.grid == pytest.approx((0.3,))
    assert test.grid == train.grid
    noise = np.asarray(test[0]) - raw
    assert 0.14 < np.abs(noise).max() <= 0.15 + 1e-12
    same(Sequences([raw]).dithered(like=train), list(test))
    other = Sequences([raw + 1]).dithered(like=train)
    assert np.abs(np.corrcoef((np.asarray(other[0]) - raw - 1)[:, 0], noise[:, 0])[0, 1]) < 0.2


def test_the_grid_stays_with_the_sequences() -> None:
    x = Sequences([np.arange(8.0)[:, None], np.arange(6.0)[:, None]]).dithered()
    parts = [x[:1], x.take([1]), *x.split(0.5), *x[:1].split(0.5), x.chunks(2), *x.continuation(2)]
    assert {part.grid for part in parts} == {(1.0,)}
    assert Sequences([np.zeros((2, 1))]).grid is None


def test_rounding_noise_is_no_grid() -> None:
    tenths = np.concatenate([np.arange(50) * 0.1, np.cumsum(np.full(50, 0.1))])[:, None]  # 0.30000000000000004 and 0.3
    assert Sequences([tenths]).dithered().grid == pytest.approx((0.1,))


# -- names and times ---------------------------------------------------------------------------------------------


def test_a_sequence_is_found_by_its_name() -> None:
    x = Sequences([[0], [1], [2], [3]], names=["s1", "s2", "s1", 7])
    same(Sequences([x["s2"]]), [[1]])
    with pytest.raises(KeyError, match="2 sequences are called 's1', at"):
        x["s1"]
    with pytest.raises(KeyError, match="no sequence is called 's3'; there are s1, s2, s1, 7"):
        x["s3"]


def test_an_array_is_no_index() -> None:
    with pytest.raises(TypeError, match=r"pass a position, a name or a slice; take\(...\) has lists"):
        Sequences([[0], [1]])[np.array([0, 1])]  # type: ignore[call-overload]


DAYS = np.datetime64("2020-01-01") + np.arange(10)


def named(kind: str = "vectors") -> Sequences:
    items = vectors(6, 4) if kind == "vectors" else [["a", "b", "a", "c", "a", "b"], ["c", "c", "a", "b"]]
    return Sequences(
        items,
        names=["p", "q"],
        labels=[1, 0],
        features=["ax", "ay"] if kind == "vectors" else ["state"],
        symbols=None if kind == "vectors" else ["c", "b", "a", "d"],
        times=[DAYS[:6], DAYS[:4] + 30],
        time_name="day",
        by="subject",
    )


@pytest.mark.parametrize("kind", ["vectors", "symbols"])
def test_names_and_times_go_with_every_part(kind: str) -> None:
    x = named(kind)
    where = {  # of each step its time
        "take": (x.take([1]), [DAYS[:4] + 30]),
        "slice": (x[:1], [DAYS[:6]]),
        "split": (x[:1].split(0.5)[1], [DAYS[3:6]]),
        "chunks": (x.chunks(4), [DAYS[:4], DAYS[4:6], DAYS[:4] + 30]),
        "X": (x.continuation(3)[0], [DAYS[:3], DAYS[:3] + 30]),
        "y": (x.continuation(3)[1], [DAYS[3:6], DAYS[3:4] + 30]),
        "segments": (x.segments([(1, 1, 3), (0, 0, 2)]), [DAYS[1:3] + 30, DAYS[:2]]),
        "metadata": (x.with_metadata(x.metadata.drop(columns="label")), [DAYS[:6], DAYS[:4] + 30]),
        "dithered": (x.dithered() if kind == "vectors" else x, [DAYS[:6], DAYS[:4] + 30]),
    }
    for name, (part, times) in where.items():
        assert (part.features, part.symbols) == (x.features, x.symbols), name
        assert (part.time_name, part.by, part.time_unit) == ("day", "subject", None), name
        assert part.times is not None
        assert [each.tolist() for each in part.times] == [each.tolist() for each in times], name


def test_a_part_of_one_is_its_own() -> None:
    part = named().segments([(1, 1, 3)])
    assert (part.names, part.labels) == (["q"], [0])
    same(part, [vectors(6, 4)[1][1:3]])


def test_a_frame_comes_back() -> None:
    frame = pd.DataFrame(
        {
            "subject": ["q"] * 3 + ["p"] * 2,
            "day": pd.to_datetime(["2020-05-01", "2020-05-02", "2020-05-04", "2020-01-01", "2020-01-02"]),
            "ax": [0.5, np.nan, 2.0, 3.0, np.nan],
            "ay": [1.0, 2.0, 3.0, 4.0, 5.0],
            "label": ["ill", "ill", "ill", "well", "well"],
            "room": [1, 1, 1, 2, 2],
        }
    )
    x = Sequences.from_frame(frame, by="subject", columns=["ax", "ay"], time="day", label="label", metadata=["room"])
    assert (x.names, x.labels, x.features, x.time_name, x.by) == (
        ["q", "p"],
        ["ill", "well"],
        ("ax", "ay"),
        "day",
        "subject",
    )
    pd.testing.assert_frame_equal(x.to_frame(), frame)
    again = x.to_frame().sample(frac=1, random_state=0).sort_values("subject", ascending=False)  # of rows in disorder
    back = Sequences.from_frame(
        again, by="subject", columns=["ax", "ay"], time="day", label="label", metadata=["room"]
    ).to_frame()
    pd.testing.assert_frame_equal(back, frame)


def test_a_frame_of_states_comes_back() -> None:
    frame = pd.DataFrame({"who": [1, 1, 2], "t": [0, 5, 3], "state": ["sit", "walk", "sit"]})
    x = Sequences.from_frame(frame, by="who", columns="state", time="t", time_unit="s")
    assert (x.kind, x.symbols, x.features, x.time_unit) == ("symbols", ("sit", "walk"), ("state",), "s")
    pd.testing.assert_frame_equal(x.to_frame(), frame)
    ordered = frame.assign(state=pd.Categorical(frame["state"], ["walk", "sit", "lie"]))
    y = Sequences.from_frame(ordered, by="who", columns="state", time="t")
    assert y.symbols == ("walk", "sit", "lie")
    pd.testing.assert_frame_equal(y.to_frame(), ordered)
    numbers = frame.assign(state=[3, 0, 3])
    pd.testing.assert_frame_equal(
        Sequences.from_frame(numbers, by="who", columns="state", time="t").to_frame(), numbers
    )


def test_one_long_frame_is_one_sequence() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=[7, 3])
    x = Sequences.from_frame(frame, columns=["a", "b"])
    same(x, [[[1, 3], [2, 4]]])
    pd.testing.assert_frame_equal(x.to_frame().drop(columns="sequence"), frame.reset_index(drop=True))
    assert list(Sequences(vectors(2, 2)).to_frame().columns) == ["sequence", "x0", "x1"]
    assert x.chunks(1).to_frame()["sequence"].tolist() == [0, 1]


def test_hours_of_a_zone_are_kept_in_utc_and_given_back_in_the_zone() -> None:
    times = pd.to_datetime(["2020-07-01 12:00", "2020-07-01 13:00"]).tz_localize("Europe/Berlin")
    x = Sequences.from_frame(pd.DataFrame({"when": times, "a": [1.0, 2.0]}), columns=["a"], time="when")
    assert x.time_unit == "UTC (Europe/Berlin)"
    assert x.times is not None
    assert x.times[0][0] == np.datetime64("2020-07-01T10:00")
    assert "when from 2020-07-01 12:00:00 to 2020-07-01 13:00:00 Europe/Berlin" in x.describe()
    assert (x.to_frame()["when"] == times).all()


def test_several_are_joined() -> None:
    x = named().take([0])
    both = Sequences.joined([x, named().take([1])])
    pd.testing.assert_frame_equal(both.to_frame(), named().to_frame())
    words = Sequences.joined([Sequences([["b", "c"]]), Sequences([["a"]])])
    assert words.symbols == ("a", "b", "c")
    assert Sequences.joined([Sequences([["b"]], symbols=["c", "b"]), Sequences([["a"]])]).symbols == ("c", "b", "a")
    assert Sequences.joined([x, Sequences(vectors(3))]).features is None
    for other, what in (
        (Sequences(["a"]), "kinds"),
        (Sequences(vectors(3), features=["p", "q"]), "features"),
        (Sequences(vectors(3)).dithered(), "grids"),
    ):
        with pytest.raises(ValueError, match=f"the parts have different {what}: Sequences"):
            Sequences.joined([x, other])
    with pytest.raises(ValueError, match="sequence 2 has 3 features but sequence 0 has 2; all must agree"):
        Sequences.joined([Sequences(vectors(3, 4)), Sequences([np.zeros((2, 3))])])
    with pytest.raises(ValueError, match="sequence 1 holds strings but the first sequence holds integers"):
        Sequences.joined([Sequences([[0, 1]]), Sequences([["a"]])])


def test_whole_sequences_are_taken_as_they_are() -> None:
    """They were checked when their container was made: they are neither copied nor checked again."""
    x = Sequences(vectors(*[3] * 40), names=[f"n{i}" for i in range(40)])
    part = x.take(np.arange(40)[::-1])
    assert [one is other for one, other in zip(part.items, x.items[::-1], strict=True)] == [True] * 40
    assert (part.names[:2], list(part.metadata.index)) == (["n39", "n38"], list(range(40)))
    part.metadata.loc[0, "name"] = "new"
    assert x.names[-1] == "n39"
    both = Sequences.joined([x.take([3]), part])
    assert both.items[1] is part.items[0]
    assert both.names[:3] == ["n3", "new", "n38"]
    with pytest.raises(ValueError, match="there are no sequences"):
        x.take([])


@pytest.mark.parametrize("kind", ["vectors", "symbols"])
def test_the_items_of_sources_and_targets_together(kind: str) -> None:
    if kind == "vectors":
        X, y = (Sequences(vectors(2, 3), features=names) for names in (["u", "v"], ["u", "w"]))
        assert items_of_both(X, X).features == ("u", "v")
    else:
        X, y = Sequences([["b"], ["c", "b"]], names=["s", "t"], past=[["c"], None]), Sequences([["a"], ["d"]])
        assert items_of_both(X, y).symbols == ("a", "b", "c", "d")
    both = items_of_both(X, y)
    same(both, [*X, *y])
    assert (both.features, both.past, both.times, len(both.metadata.columns)) == (None, None, None, 0)


# -- other items in the place of those that there are --------------------------------------------------------------


def timed() -> Sequences:
    return Sequences(
        [np.arange(4.0)[:, None], np.arange(3.0)[:, None]],
        **{"names": ["s", "t"], "labels": ["one", "two"], "clusters": ["ann", "bob"], "features": ["level"]},
        times=[[0.0, 0.1, 0.2, 0.3], [5.0, 6.0, 7.0]],
        **{
            "time_name": "at",
            "time_unit": "s",
            "by": "word",
            "inputs": [[1, 2, 3, 4], [5, 6, 7]],
            "input_names": ["u"],
        },
    )


def test_map_keeps_everything_that_is_said_of_a_sequence() -> None:
    x = timed()
    deltas = x.map(lambda frames: np.hstack([frames, np.gradient(frames, axis=0)]), features=["level", "delta"])
    np.testing.assert_array_equal(deltas[1], [[0, 1], [1, 1], [2, 1]])
    assert (deltas.names, deltas.labels, deltas.clusters) == (x.names, x.labels, x.clusters)
    assert (deltas.features, deltas.time_name, deltas.time_unit, deltas.by) == (("level", "delta"), "at", "s", "word")
    assert deltas.times is not None
    assert x.times is not None
    assert deltas.inputs is not None
    assert x.inputs is not None
    same(Sequences([t[:, None] for t in deltas.times]), [t[:, None] for t in x.times])
    same(Sequences(deltas.inputs), x.inputs)
    assert x.map(np.log1p).features == ("level",)
    assert x.map(lambda frames: np.hstack([frames, frames])).features is None
    words = Sequences([["a", "b"], ["b"]], symbols=["a", "b", "c"])
    assert words.map(lambda steps: steps[::-1]).symbols == ("a", "b", "c")
    assert words.map(lambda steps: ["z", *steps]).symbols == ("a", "b", "z")


def test_other_steps_have_the_times_that_they_are_given() -> None:
    x = timed()
    half = x.map(lambda f: f[::2], times=lambda t: t[::2], inputs=lambda u: u[::2])
    assert half.times is not None
    assert half.inputs is not None
    assert half.times[0].tolist() == [0.0, 0.2]
    assert half.inputs[1].ravel().tolist() == [5.0, 7.0]
    assert (half.input_names, half.labels) == (("u",), x.labels)
    without = x.map(lambda f: f[::2], times=None, inputs=None)
    assert without.times is None
    assert without.inputs is None
    assert without.clusters == x.clusters
    for options, said in [
        ({}, "sequence 0 has 4 steps with times and becomes one of 2 steps; pass times="),
        ({"times": None}, "sequence 0 has 4 steps with inputs and becomes one of 2 steps; pass inputs="),
        ({"times": [[0.0]]}, "times is of type list; pass a function"),
    ]:
        with pytest.raises(ValueError, match=said):
            x.map(lambda f: f[::2], **options)
    with pytest.raises(ValueError, match="the function refuses sequence 1: too short"):
        x.map(refuse_short)
    with pytest.raises(ValueError, match="inputs is a function of inputs, but these sequences have none"):
        Sequences(["ab"]).map(str.upper, inputs=len)
    _train, test = x[:1].split(0.5)
    with pytest.raises(ValueError, match="these sequences have a past"):
        test.map(np.log1p)
    assert test.including_past().map(np.log1p).times is not None
    with pytest.raises(ValueError, match="there are 1 items but 2 sequences"):
        x.with_items([np.zeros((4, 1))])


def refuse_short(frames: np.ndarray) -> np.ndarray:
    if len(frames) < 4:
        raise ValueError("too short")
    return frames


def test_including_past_is_the_sequence_that_was_split() -> None:
    x = timed()[:1]
    whole = x.split(0.5, past=None)[1].including_past()
    assert whole.past is None
    assert whole.times is not None
    assert x.times is not None
    assert x.inputs is not None
    same(whole, list(x))
    same(Sequences(whole.inputs or []), x.inputs)
    np.testing.assert_array_equal(whole.times[0], x.times[0])
    assert x.including_past() is x
    unknown = Sequences([np.ones((2, 1))], times=[[3.0, 4.0]], past=[np.zeros((1, 1))])
    assert unknown.including_past().times is None
    both = Sequences([np.ones((2, 1))] * 2, past=[None, np.zeros((1, 1))]).including_past()
    assert both.n_units.tolist() == [2, 3]


def test_folds_of_scikit_learn_keep_everything() -> None:
    from sklearn.model_selection import train_test_split

    x = timed()
    train, test = train_test_split(x, test_size=0.5, random_state=0)
    assert isinstance(train, Sequences)
    assert isinstance(test, Sequences)
    assert sorted([*train.names, *test.names]) == ["s", "t"]
    for part in (train, test):
        expected = x.take([x.names.index(part.names[0])])
        assert part.describe() == expected.describe()
        assert part.input_names == ("u",)
        np.testing.assert_array_equal(part.times, expected.times)


# -- a row at every step -------------------------------------------------------------------------------------------


def test_regular_has_a_row_at_every_step_and_keeps_the_rest() -> None:
    days = np.array(["2024-01-31", "2024-02-29", "2024-04-30", "2024-05-31"], dtype="datetime64[D]")
    x = Sequences(
        [np.arange(8.0).reshape(4, 2), np.ones((2, 2))],
        **{"times": [days, days[:2]], "names": ["a", "b"], "labels": [0, 1], "clusters": ["u", "v"]},
        **{"inputs": [[1.0, 2.0, 4.0, 5.0], [7.0, 8.0]], "input_names": ["n"], "features": ["y", "z"], "by": "shop"},
    )
    for how, added in (("hold", 2.0), ("interpolate", 3.0)):
        regular = x.regular(inputs=how)  # type: ignore[arg-type]
        np.testing.assert_array_equal(regular[0], [[0, 1], [2, 3], [np.nan, np.nan], [4, 5], [6, 7]])
        assert regular.times is not None
        assert regular.times[0][2] == np.datetime64("2024-03-31")
        assert (regular.inputs or [])[0].ravel().tolist() == [1.0, 2.0, added, 4.0, 5.0]
        assert regular.metadata.equals(x.metadata)
        assert (regular.features, regular.input_names, regular.by) == (x.features, x.input_names, "shop")
        assert regular.regular() is regular
    with pytest.raises(ValueError, match=r"1 steps are added, whose inputs \(n\) are not known; pass inputs='hold'"):
        x.regular()


def test_what_has_no_regular_steps_is_named() -> None:
    x = Sequences([np.zeros((4, 1))] * 2, times=[[0.0, 1.0, 3.0, 4.0], [0.0, 0.1, 7.0, 7.3]], names=["a", "b"])
    with pytest.raises(ValueError, match="times of sequence 'b' are not regular: steps between them are of 3 lengths"):
        x.regular()
    assert [len(item) for item in x.regular(irregular="keep")] == [5, 4]
    twice = Sequences([np.zeros((3, 1))], times=[[0.0, 1.0, 1.0]])
    with pytest.raises(ValueError, match="steps 1 and 2 are at one time, 1"):
        twice.regular()
    for other, said in [
        (Sequences([np.zeros((3, 1))]), "these sequences have no times"),
        (Sequences([[0, 1]], times=[[0, 1]]), "these sequences are symbols, of which none can be missing"),
        (x.split(0.5)[1][:1].segments([(0, 2, 4)], past=1), "these sequences have a past"),
    ]:
        with pytest.raises(ValueError, match=said):
            other.regular()


def test_times_of_different_units_are_not_joined() -> None:
    x, item = timed(), [np.zeros((2, 1))]
    for unit in ("h", None):
        other = Sequences(item, times=[[0.0, 1.0]], time_unit=unit, features=["level"])
        with pytest.raises(ValueError, match=r"the parts have times of different units: .*; pass times of one unit"):
            Sequences.joined([x, other])
