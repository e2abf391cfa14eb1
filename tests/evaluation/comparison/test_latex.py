"""The table in LaTeX: rules, columns, and every text escaped."""

import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.comparison.latex import escaped, latex_table


def test_every_character_of_a_meaning_is_escaped():
    assert escaped(r"a\b{c}_d^e~f#g$h&i%j<k>") == (
        r"a\textbackslash{}b\{c\}\_d\textasciicircum{}e\textasciitilde{}f\#g\$h\&i\%j$<$k$>$"
    )
    assert escaped("two\nlines") == "two lines"


def test_the_table_is_a_tabular_with_three_rules():
    frame = pd.DataFrame({"a_b": ["x & y", "z-1"], "score": ["-1.5*", "2.0 "], "p": ["<1e-4", ""]})
    lines = latex_table(frame).splitlines()
    assert lines[0] == r"\begin{tabular}{lrr}"
    assert [line for line in lines if line.endswith("rule")] == [r"\toprule", r"\midrule", r"\bottomrule"]
    assert lines[2] == r"a\_b & score & p \\"
    assert lines[4:6] == [r"x \& y & $-$1.5* & $<$1e-4 \\", r"z-1 & 2.0 &  \\"]
    floating = latex_table(frame, caption="50 %", label="tab:a_b").splitlines()
    assert floating[0] == r"\begin{table}"
    assert floating[2:4] == [r"\caption{50 \%}", r"\label{tab:a_b}"]


def test_a_comparison_has_all_of_its_columns():
    models = {"50 %": sm.HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.5, 0.5]])}
    result = sm.compare(models, [[0, 1, 0]] * 6)
    text = result.to_latex()
    assert r"50 \% & " in text
    assert text.splitlines()[2].count("&") == len(result.table().columns) - 1
