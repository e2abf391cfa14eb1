"""Small comparisons of every kind of data, and what a page looks like to a parser."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest

import seqmodels as sm

VOID = {"meta", "img", "br", "link", "input", "source"}
POEM = "the cat sat on the mat & ate <it>\nthen the cat sat down – naïve\n" * 12


class Page(HTMLParser):
    """Tags in balance, ids, links, pictures, headings and all text of a page."""

    def __init__(self, source):
        super().__init__()
        self.source, self.open = source, []
        self.ids, self.links, self.images, self.narrow, self.headings, self.texts = [], [], [], [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if tag == "a" else []
        self.images += [found] if tag == "img" else []
        self.narrow += [found["srcset"]] if tag == "source" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
        self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)


@pytest.fixture(scope="session")
def read():
    return Page


@pytest.fixture(scope="session")
def texts():
    models = {"hmm": sm.HMM(3, max_iter=3), "3-gram <b>": sm.NGram(3)}
    return sm.compare(models, [POEM], test=[POEM[300:]], baseline="hmm", title="Poems & <prose>", iid=False)


@pytest.fixture(scope="session")
def vectors():
    x, _ = sm.data.hmm_draws(60, 8, n_states=3, n_features=2, random_state=4)
    train, test = x.split(0.5)
    models = {"one": sm.HMM(1, max_iter=3), "three": sm.HMM(3, max_iter=8)}
    return sm.compare(models, train, test=test, iid=False)


@pytest.fixture(scope="session")
def pairs():
    X = ["abc", "ab", "ba", "cab", "bac", "ca"]
    y = [x[::-1] for x in X]
    models = {
        "recurrent": sm.LSTMSeq2Seq(d_model=8, max_steps=4),
        "fixed": sm.LSTMSeq2Seq(d_model=8, max_steps=4, attention=None),
        "hmm": sm.HMM(2, max_iter=2),
    }
    found = sm.compare({name: model.fit(X, y, validation=None) for name, model in models.items()}, X, y)
    return replace(found, source=sm.Sequences(X))


@pytest.fixture(scope="session")
def symbols():
    chain = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]]}
    model = sm.HMM.from_parameters(**chain, emission=[[0.9, 0.1], [0.2, 0.8]])
    return sm.compare({"only": model}, model.sample(8, length=30))
