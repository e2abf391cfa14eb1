"""How far does each family stay from the true entropy rate?

Claim: the true model's own log-probability is a floor that no model passes, families that can express the source reach
it as data grow (Cover & Thomas 2006, chapters 4 and 5; Shannon 1948), and the family of the source with the fewest
symbols (Bishop 2006, section 1.3).

Rule: four parts. (a) No model is better than the truth: contradicted if an interval of the excess, 95 % corrected for
how many there are, lies below zero. (b) Each family's excess is smaller with the most data than with the least: held if
the two intervals lie apart in this order. (c) The HMM of the right size has the least excess at every amount of data:
held if its interval lies below those of all others, contradicted if above one. (d) With the most data its excess is
less than 0.01 nats per symbol.

Excess: nats per symbol, the true HMM's log-probability minus the model's, on the same 400 held-out sequences of 128
symbols: its mean is the Kullback-Leibler divergence. Source: 8 states, 16 symbols, a state kept with probability 0.8.
The n-gram's order is the best of 2 to 5 on a tenth of its training part; EM takes the best of 3 starts; networks are 64
wide, 400 steps at most, stopped early on a tenth held out.
"""

import argparse

import pandas as pd
from choosing import best
from claim import Finding, main
from contrasts import difference, interval
from curves import Panel, drawn
from matplotlib.figure import Figure
from verdict import Part, Verdict, of_all, of_interval

import seqmodels as sm

CLAIM = (
    "The true model's log-probability is a floor; families that can express the source reach it as data grow, and the "
    "source's own family with the fewest symbols (Shannon 1948; Cover & Thomas 2006; Bishop 2006)."
)
LENGTH, N_STATES, N_TEST = 128, 8, 400
SIZES = (8, 64, 512, 2048)  # sequences
LOOKS = 5 * len(SIZES)  # families and sizes, any of which might seem to pass the floor
NEAR = 0.01  # nats per symbol: the excess that counts as having arrived


def source(n_train: int) -> tuple[sm.Sequences, sm.Sequences, sm.HMM]:
    """Training and held-out draws, and the HMM they were drawn from."""
    drawn, truth = sm.data.hmm_draws(n_train + N_TEST, LENGTH, n_states=N_STATES, n_symbols=16)
    true = sm.HMM.from_parameters(truth.initial, truth.transition, emission=truth.emission)
    return drawn[N_TEST:], drawn[:N_TEST], true


def families(train: sm.Sequences, steps: int) -> dict[str, sm.SequenceModel]:
    alphabet = sm.Symbols(16)  # which symbols there are is known, also where a small training part lacks one
    return {
        "hmm of the right size": sm.HMM(
            N_STATES, observation=sm.Categorical(pseudocount=0.01), n_init=3, length="given", encoding=alphabet
        ),
        "n-gram": best([sm.NGram(n, length="given", encoding=alphabet) for n in range(2, 6)], train),
        "elman": sm.ElmanRNN(d_model=64, max_steps=steps, length="given", encoding=alphabet),
        "lstm": sm.LSTM(d_model=64, max_steps=steps, length="given", encoding=alphabet),
        "transformer": sm.Transformer(d_model=64, n_layers=2, max_steps=steps, length="given", encoding=alphabet),
    }


def excesses(train: sm.Sequences, test: sm.Sequences, true: sm.HMM, steps: int) -> pd.DataFrame:
    """A row for each family fitted to ``train``."""
    floor, rows = true.log_prob_steps(test), []
    for family, model in families(train, steps).items():
        excess = interval(difference(floor, model.fit(train).log_prob_steps(test), test, looks=LOOKS))
        rows.append({"family": family, "n_symbols": int(train.n_units.sum()), **excess, "rate": -true.score(test)})
    return pd.DataFrame(rows)


def measure(given: argparse.Namespace) -> Finding:
    sizes = (16, 64) if given.quick else SIZES
    train, test, true = source(sizes[-1])
    frame = pd.concat([excesses(train[:n], test, true, 60 if given.quick else 400) for n in sizes], ignore_index=True)
    table = frame.pivot(index="n_symbols", columns="family", values="difference")
    floor = not (frame["ci_high"] < 0).any()
    falls = bool((table.iloc[-1] < table.iloc[0]).all())
    right = table["hmm of the right size"]
    first = bool((table.idxmin(axis=1) == right.name).all()) and right.iloc[-1] < NEAR
    arrives = "first throughout and arrives" if first else f"not first throughout, or {NEAR} away with the most"
    sentence = (
        f"the source's rate is {frame['rate'].iloc[0]:.3f} nats per symbol; excess with {table.index[0]:,} "
        f"and with {table.index[-1]:,} symbols: "
        f"{'; '.join(f'{name} {table[name].iloc[0]:.3f}, {table[name].iloc[-1]:.4f}' for name in table)}. "
        f"Floor {'kept' if floor else 'passed'}; each excess {'falls' if falls else 'does not fall'}; "
        f"the source's own family is {arrives}."
    )
    return Finding(CLAIM, parts(frame), sentence, frame, picture(frame))


def parts(frame: pd.DataFrame) -> list[Part]:
    """The verdicts by the rule in the docstring of this script."""
    low, high = (frame.pivot(index="n_symbols", columns="family", values=name) for name in ("ci_low", "ci_high"))
    excess = frame.pivot(index="n_symbols", columns="family", values="difference")
    own = "hmm of the right size"
    others = [family for family in low if family != own]
    passed: Verdict = "contradicted" if (frame["ci_high"] < 0).any() else "held"
    falls = [of_interval(low[f].iloc[0] - high[f].iloc[-1], high[f].iloc[0] - low[f].iloc[-1]) for f in low]
    first = [of_interval(low[f][n] - high[own][n], high[f][n] - low[own][n]) for f in others for n in low.index]
    arrived = of_interval(NEAR - high[own].iloc[-1], NEAR - low[own].iloc[-1])
    least = f"{frame['difference'].min():+.4f} nats per symbol is the least excess"
    ratio = (excess.iloc[0] / excess.iloc[-1]).round(1)
    clear = (
        f"clearly in {first.count('held')} of {len(first)} comparisons, clearly not in {first.count('contradicted')}"
    )
    last = excess[own].iloc[-1], low[own].iloc[-1], high[own].iloc[-1]
    return [
        Part("no model passes the truth", passed, least),
        Part(
            "each family's excess falls with data", of_all(falls), f"by factors of {ratio.min():g} to {ratio.max():g}"
        ),
        Part("the source's own family is first at every size", of_all(first), clear),
        Part(
            "the source's own family arrives", arrived, "excess {:.4f} [{:.4f}, {:.4f}] nats per symbol".format(*last)
        ),
    ]


def picture(frame: pd.DataFrame) -> Figure:
    """Both axes logarithmic: an excess that falls as 1 / n is a line."""
    labels, band = ("training symbols", "excess, nats per symbol (lower is better)"), ("ci_low", "ci_high")
    title = "Distance to the true entropy rate"
    figure = drawn([Panel(frame, "n_symbols", "difference", title, labels, "x", by="family", interval=band)])
    positive = frame.loc[frame["difference"] > 0, "difference"].min()
    figure.axes[0].set_yscale("log", nonpositive="clip")
    figure.axes[0].set_ylim(0.5 * positive, 2 * frame["difference"].max())
    return figure


if __name__ == "__main__":
    main(__doc__, measure)
