"""What the sections say, by hand."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

import seqmodels as sm
from seqmodels.common.html import element
from seqmodels.encodings.text import encoded_steps
from seqmodels.evaluation.comparison.report import curves, differences, inspection, page, ranking, samples
from seqmodels.evaluation.comparison.report.data import pair_of, readable_nats, sequence_label
from seqmodels.evaluation.comparison.report.elements import (
    MAX_SVG_SIZE,
    ON_DARK,
    as_svg,
    number,
    picture,
    table,
    with_dark,
)
from seqmodels.plot.pairwise import pairwise_matrix
from seqmodels.plot.style import COLOURS, INK, MUTED

BEST = "3-gram <b>"


def test_names_that_are_not_unique_are_numbered():
    assert sequence_label(sm.Sequences(["a", "b"], names=["x", "x"]), 1) == "sequence 1 (x)"
    assert sequence_label(sm.Sequences(["a", "b"], names=["x", "y"]), 1) == "sequence y"


class TestSummary:
    def test_who_by_how_much_and_how_sure(self, vectors):
        best = vectors.frame.iloc[0]
        said = ranking.summary(vectors)
        assert said.startswith("three explains the held-out data best: −")
        assert f"{best['difference']:.3f} nats per frame better than the baseline one" in said
        assert f"(95\u00a0% interval {best['ci_low']:.3f} to {best['ci_high']:.3f}; p < 1e-4)." in said

    def test_a_difference_that_may_be_chance_is_called_so(self, vectors):
        frame = vectors.frame.copy()
        frame.attrs = vectors.frame.attrs
        frame.loc[0, ["p_value", "p_holm"]] = 0.2
        assert "p = 0.200): the test data do not tell the two apart" in ranking.summary(replace(vectors, frame=frame))
        frame.loc[0, ["p_value", "p_holm"]] = 0.03, 0.09
        said = ranking.summary(replace(vectors, frame=frame))
        assert (
            "p = 0.030; p = 0.090 when corrected for the number of models): that may be chance, since several" in said
        )
        before = frame.drop(columns="p_holm")  # of a comparison saved when its one p-value was corrected
        assert "p = 0.030)." in ranking.summary(replace(vectors, frame=before))
        frame.loc[0, "ci_low"] = np.nan
        assert "too few independent test sequences" in ranking.summary(replace(vectors, frame=frame))

    def test_pairs_that_were_not_tested_are_not_counted_as_alike(self):
        rng = np.random.default_rng(0)
        x = [rng.normal(size=(9, 1)) for _ in range(5)]
        models = {name: sm.HMM(k, max_iter=1, n_init=1).fit(x[:3]) for name, k in (("a", 1), ("b", 2), ("c", 3))}
        with pytest.warns(UserWarning, match="fewer than 5"):
            untested = sm.compare(models, x[3:], baseline="a", iid=False)
        body = str(ranking.pairs(untested).body)
        assert "No pair was tested (fewer than 5 clusters), so nothing is said here of which models differ." in body
        assert "told apart (p" not in body

    def test_the_lead_over_the_runner_up_is_paired(self, vectors):
        lead = ranking.lead_over(vectors, "three", "one")
        best = vectors.frame.iloc[0]
        assert lead.difference == pytest.approx(best["difference"])
        assert lead.low == pytest.approx(best["ci_low"], abs=1e-9)
        swapped = vectors.frame.copy()
        swapped.attrs = {**vectors.frame.attrs, "baseline": "three"}
        said = ranking.summary(replace(vectors, frame=swapped))
        assert f"Next is one, {lead.difference:.3f} nats per frame behind" in said

    def test_no_interval_where_the_clusters_are_not_known(self, vectors):
        frame = vectors.frame.assign(n_clusters=7)
        assert np.isnan(ranking.lead_over(replace(vectors, frame=frame), "three", "one").low)

    def test_text_is_in_bits(self, texts):
        assert f"{texts.frame['bits'].iloc[0]:.3f} bits per byte (−" in ranking.summary(texts)


class TestPosition:
    def test_leads_over_the_baseline(self, vectors):
        made = {"one": [np.zeros(8)] * 20, "three": [np.array([1.0] * 5 + [2.0, -np.inf, 4.0])] * 20}
        said = curves.position(replace(vectors, log_prob_steps=made)).body
        assert "three +1.00, later +3.00" in said

    def test_few_sequences_say_nothing_of_positions(self, texts):
        assert "there are few sequences" in curves.position(texts).body


class TestDifferences:
    def test_bytes_become_characters(self):
        assert readable_nats("aïb", np.array([1.0, 2.0, 3.0, 4.0, 9.0])).tolist() == [1, 5, 4]
        assert readable_nats(np.array([5, 6]), np.array([1.0, 2.0, 9.0])).tolist() == [1, 2]

    def test_the_most_different_passage_is_first(self, texts):
        found = differences.passages(texts, BEST, "hmm")
        totals = [abs(p.total) for p in found]
        assert totals == sorted(totals, reverse=True)
        whole = sum(s.sum() for s in texts.log_prob_steps[BEST]) - sum(s.sum() for s in texts.log_prob_steps["hmm"])
        ends = texts.log_prob_steps[BEST][0][-1] - texts.log_prob_steps["hmm"][0][-1]
        assert sum(p.total for p in found) == pytest.approx(whole - ends)
        turned = differences.passages(texts, "hmm", BEST)
        assert [p.start for p in turned] == [p.start for p in found]
        in_order = sorted(found, key=lambda p: p.start)
        assert "".join(step for p in in_order for step in p.steps) == texts.test.items[0]

    def test_the_colour_and_the_figures_of_a_character(self):
        passage = differences.Passage(
            "s", 0, ["<", "b", "c"], np.array([-1.0, -5.0, -1.0]), np.array([-3.0, -1.0, -1.05])
        )
        drawn = differences._coloured(passage, "ours", "theirs")
        assert '<span class="b3" title="ours −1.00, theirs −3.00: +2.00 nats">&lt;</span>' in drawn
        assert '<span class="w4" title="ours −5.00, theirs −1.00: −4.00 nats">b</span>c</p>' in drawn
        assert "theirs ahead by 1.9 nats" in drawn or "theirs ahead by 2.0 nats" in drawn

    def test_what_one_thought_impossible_is_no_infinite_lead(self):
        found = differences.bounded_difference(np.array([-np.inf, -1.0, -np.inf]), np.array([-1.0, -np.inf, -np.inf]))
        assert found.tolist() == [-differences.MAX_DIFFERENCE, differences.MAX_DIFFERENCE, 0]

    def test_long_sequences_of_vectors_are_cut(self, vectors):
        x = sm.Sequences([np.zeros((10, 2)), np.zeros((900, 2))])
        ours, theirs = [np.zeros(11), np.repeat([0.0, -1.0], 450)], [np.zeros(11), np.zeros(900)]
        made = replace(vectors, test=x, log_prob_steps={"three": ours, "one": theirs})
        found = differences.clips(made, "three", "one")
        assert [(c.sequence, c.start, len(c.difference), c.difference.sum()) for c in found] == [
            (1, 400, 400, -350),
            (1, 800, 100, -100),
            (0, 0, 10, 0),
            (1, 0, 400, 0),
        ]

    def test_who_is_compared(self, vectors, symbols):
        assert differences.two_models(vectors) == ("three", "one")
        assert differences.two_models(symbols) is None
        frame = vectors.frame.copy()
        frame.attrs = {**vectors.frame.attrs, "baseline": "three"}
        assert differences.two_models(replace(vectors, frame=frame)) == ("three", "one")

    def test_the_runner_up_has_a_section_where_it_is_not_the_baseline(self, pairs, vectors):
        ranked = pairs.frame.loc[pairs.frame["rank"].notna(), "model"].tolist()
        assert pairs.baseline not in ranked[:2]
        made = differences.runner_up_section(pairs)
        assert made is not None
        assert made.title == f"Where {ranked[0]} and {ranked[1]} differ"
        assert differences.two_models(pairs) == (ranked[0], pairs.baseline)
        assert differences.runner_up_section(vectors) is None


class TestSamples:
    def test_a_model_that_cannot_be_drawn_from_costs_a_sentence(self, symbols):
        model = sm.HMM.from_parameters([1.0], [[1.0]], emission=[[1.0]])
        model.parameters_.initial[0] = float("nan")
        body = samples.section(replace(symbols, models={**symbols.models, "broken": model})).body
        assert "broken could not be drawn from" in body
        assert "<h3>only</h3>" in body

    def test_draws_are_as_long_as_what_came(self, vectors):
        drawn, failed = samples.draws(vectors, vectors.test.items[0], None)
        assert {name: item.shape for name, item in drawn.items()} == {"one": (8, 2), "three": (8, 2)}
        assert failed == []


class TestStates:
    def test_visits_by_hand(self):
        found = inspection.visits([np.array([1, 1, 0, 1]), np.array([0, 0, 0, 1])])
        assert found["state"].tolist() == [0, 1]
        assert found["share"].tolist() == [0.5, 0.5]
        assert found["mean duration"].tolist() == [2, pytest.approx(4 / 3)]
        assert found["longest"].tolist() == [3, 2]

    def test_bytes_of_one_character(self, texts):
        model = texts.models["hmm"]
        assert encoded_steps(model.encoding_, "aï") == ["a", "·", "ï"]
        shown = inspection._emitted(model, sm.Sequences(["aab"]), [np.array([0, 0, 0])], [0, 1])
        assert shown == ["a 67%  b 33%", ""]

    def test_of_pairs_the_targets_path_is_shown(self, pairs):
        X, y = pair_of(pairs, np.array([0, 1]))
        body = inspection._states_of("hmm", pairs.models["hmm"], X, y)
        assert "The first 5 steps" in body
        assert body.count("<br>") == 1


class TestAttention:
    def test_who_aligns(self, pairs):
        assert [name for name, model in pairs.models.items() if inspection.aligns(model)] == ["recurrent"]
        assert inspection.attention(pairs).body.count("<img") == 1
        assert inspection.attention(replace(pairs, source=None)) is None

    def test_the_pair_is_readable(self):
        assert inspection.readable_pair(np.array([5, 40, 9, 3]), np.array([4, 2, 6, 29])) == 3
        assert inspection.readable_pair(np.array([50, 40]), np.array([4, 2])) == 1


class TestCalibration:
    def test_errors_are_said(self, symbols, vectors):
        assert "Errors: only 0." in curves.calibration(symbols).body
        assert curves.calibration(vectors).body.count("<img") == 1

    def test_bits_have_none(self):
        bits = [np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[2, 1]]]
        made = sm.compare({"bits": sm.HMM(1, observation=sm.Bernoulli(), max_iter=1).fit(bits)}, bits)
        assert curves.calibration(made) is None
        with pytest.raises(ValueError, match="calibration is measured for"):
            made.plot_calibration()


class TestProvenance:
    def test_what_is_known_is_shown(self, symbols):
        known = {
            "command": "seqmodels compare",
            "random_state": 3,
            "sha256": {"test": "ab12"},
            "models": {"only": {"n": 1}},
        }
        body = page.provenance_section(replace(symbols, provenance=known)).body
        assert "python seqmodels compare" in body
        assert "<dt>random state</dt><dd>3</dd>" in body
        assert "test: ab12" in body
        assert "&#34;n&#34;: 1" in body

    def test_without_provenance_the_page_says_what_it_can(self, symbols):
        known = page.known_provenance(replace(symbols, provenance={}))
        assert known["sha256"] == {"test": sm.data.sha256(symbols.test)}
        assert set(known["models"]) == {"only"}
        assert {"command", "versions", "hardware"} <= set(known)


def test_elements_of_html():
    assert element("paragraph", "a < b", quiet=True) == '<p class="quiet">a &lt; b</p>'
    assert number(-1.25, "+.1f") == "−1.2"
    drawn = table(pd.DataFrame({"model": ["<x>"], "n": [3]}), "A <table>")
    assert '<th scope="row">&lt;x&gt;</th><td>3</td>' in drawn
    assert 'aria-label="A &lt;table&gt;"' in drawn


def test_a_table_of_many_columns_says_that_it_scrolls():
    assert "Scroll the table" not in table(pd.DataFrame({"a": [1], "b": [2]}), "few")
    assert "Scroll the table" in table(pd.DataFrame([range(5)]), "many")


class TestPictures:
    def test_small_ones_are_svg_for_both_widths_and_large_ones_png(self, vectors):
        widths = []

        def draw(width):
            widths.append(width)
            return vectors.ranking_figure(width=width)

        drawn = picture(draw, "What it <shows>", "How to read it")
        assert widths == [7.0, 3.75]
        assert drawn.count("data:image/svg+xml;base64,") == 2
        assert 'class="themed"' in drawn
        assert 'alt="What it &lt;shows&gt;"' in drawn

        def large(width):
            figure = Figure(figsize=(width, 3))
            figure.add_subplot().plot(np.random.default_rng(0).normal(size=20_000))
            return figure

        assert len(as_svg(large(7.0))) > MAX_SVG_SIZE
        assert picture(large, "", "").count("data:image/png;base64,") == 2
        assert 'class="inverted"' in picture(large, "", "")

    def test_every_colour_of_the_style_has_another_on_a_dark_page(self, vectors):
        svg = as_svg(vectors.ranking_figure())
        assert "fill: #ffffff" in svg
        themed = with_dark(svg)
        light, dark = themed.split("@media(prefers-color-scheme:dark)")
        assert "--cffffff:#ffffff" in light
        assert f"--cffffff:{ON_DARK['#ffffff']}" in dark
        assert "fill: var(--cffffff)" in themed
        assert not [colour for colour in ON_DARK if f": {colour}" in themed]
        before, after = (re.sub(r"#[0-9a-f]{6}|var[(]--c[0-9a-f]{6}[)]", "", each) for each in (svg, themed))
        assert re.sub("<style>.*?</style>", "", after, count=1) == before  # nothing but colours differs

    def test_a_matrix_of_pairs_is_legible_on_a_dark_page(self):
        names = ["a", "b", "c"]
        pairs = pd.DataFrame([("a", "b", 0.1, 0.02), ("a", "c", 0.2, 1e-5), ("b", "c", 0.1, 0.3)])
        pairs.columns = ["model", "other", "difference", "p_holm"]
        figure = pairwise_matrix(pairs, names)
        (axes,) = figure.axes
        assert not axes.images  # whose colours stay as they are
        cells = [patch for patch in axes.patches if patch.get_gid() == "told apart"]
        told_apart = {(round(cell.get_x() + 0.5), round(cell.get_y() + 0.5)): cell for cell in cells}
        assert set(told_apart) == {(1, 0), (0, 1), (2, 0), (0, 2)}
        card = np.array(to_rgb(ON_DARK["#ffffff"]))
        for cell in told_apart.values():
            colour = to_hex(cell.get_facecolor())
            assert colour in ON_DARK
            strength = cell.get_alpha()
            over = strength * np.array(to_rgb(ON_DARK[colour])) + (1 - strength) * card
            assert (luminance(ON_DARK[INK]) + 0.05) / (luminance(over) + 0.05) > 4.5  # WCAG 2.1, text
            light = strength * np.array(to_rgb(colour)) + 1 - strength
            assert (luminance(light) + 0.05) / (luminance(INK) + 0.05) > 4.5
        assert "data:image/png" not in with_dark(as_svg(figure))

    def test_dark_colours_are_distinct_and_legible_on_the_card(self):
        card = luminance(ON_DARK["#ffffff"])
        assert len({ON_DARK[colour.lower()] for colour in COLOURS}) == len(COLOURS)
        for colour in (*COLOURS, INK, MUTED):
            assert (luminance(ON_DARK[colour.lower()]) + 0.05) / (card + 0.05) > 4.5  # WCAG 2.1, text


def luminance(colour):
    """Relative luminance by WCAG 2.1."""
    parts = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour))
    return float(np.dot((0.2126, 0.7152, 0.0722), list(parts)))
