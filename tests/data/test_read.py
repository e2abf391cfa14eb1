"""Files of every format, read by their ending."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.data import read
from seqmodels.data.read import FORMATS


def write(folder: Path, name: str, content: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".gz"):
        file.write_bytes(gzip.compress(content.encode()))
    else:
        file.write_text(content, encoding="utf-8")
    return file


ONE_OF_EACH = [
    ("a.csv", "ax,ay\n0.5,1\n1.5,2\n", "1 sequence, 2 frames, features ax, ay: real"),
    ("a.csv.gz", "ax,ay\n0.5,1.25\n1.5,2\n", "1 sequence, 2 frames, features ax, ay: real"),
    ("a.TSV", "ax\tay\n0.5\t1.5\n1.5\t2\n", "1 sequence, 2 frames, features ax, ay: real"),
    (
        "a.ts",
        "@classLabel true x y\n@data\n1.5,2,3:4.5,5,?:x\n3,4:5,6:y\n",
        "2 sequences, 5 frames, 2 features: real; 10.0% of the values missing; labels x, y",
    ),
    ("a.fasta", ">s1 a protein\nGAT\nTACA\n>s2\ncat\n", "2 sequences, 10 symbols: A, C, G, T; metadata description"),
    ("a.jsonl", '["sit", "walk"]\n["sit"]\n', "2 sequences, 3 symbols: sit, walk"),
    ("a.json", "[[0, 2], [1]]", "2 sequences, 3 symbols: 0 to 2"),
    ("a.txt", "to be\n", "1 text, 6 bytes"),
    ("a.text.gz", "to be\n", "1 text, 6 bytes"),
    ("README", "to be", "1 text, 5 bytes"),
]


@pytest.mark.parametrize(("name", "content", "said"), ONE_OF_EACH, ids=[name for name, _, _ in ONE_OF_EACH])
def test_a_file_of_each_format(tmp_path: Path, name: str, content: str, said: str) -> None:
    assert read(write(tmp_path, name, content)).describe() == said


def test_every_format_is_there() -> None:
    """Those of binary files alone have tests of their own."""
    endings = {ending for name, _, _ in ONE_OF_EACH for ending in Path(name.lower()).suffixes}
    of_text = [each for each in FORMATS if each.endings != each.binary]
    assert [each.name for each in of_text if not endings & set(each.endings)] == []


def test_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 2)) * [[0.5], [1.5], [2.0]])
    assert read(tmp_path / "a.npy").names == ["a"]
    assert read(tmp_path / "a.npy").n_units.tolist() == [3]


def test_kind_overrides(tmp_path: Path) -> None:
    counts = write(tmp_path, "counts.csv", "n\n3\n0\n4\n")
    assert read(counts).kind == "symbols"
    x = read(counts, kind="vectors")
    assert (x.kind, x.features) == ("vectors", ("n",))
    assert np.asarray(x[0]).tolist() == [[3], [0], [4]]
    dna = write(tmp_path, "dna.fa", ">a\nACG\n")
    assert list(read(dna, kind="text")) == ["ACG"]
    names = write(tmp_path, "names.txt", "ann\nbob\n")
    assert read(names, kind="symbols", unit="line").symbols == ("a", "b", "n", "o")
    numbers = write(tmp_path, "numbers.txt", "13\n14\n8\n")
    assert np.asarray(read(numbers, kind="vectors")[0]).tolist() == [[13], [14], [8]]
    assert np.asarray(read(numbers, kind="symbols")[0]).tolist() == [13, 14, 8]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (">seq1 human\nACGT\nACGT\n", "FASTA, and its headers"),
        ('["a", "b"]\n["c"]\n', "JSON, and its brackets"),
        ('{"text": "a"}\n', "JSON, and its brackets"),
        ("1.5\n2\n-3e-4\n", "numbers, and their digits"),
    ],
)
def test_other_formats_are_not_modelled_as_text_without_a_word(tmp_path: Path, content: str, what: str) -> None:
    file = write(tmp_path, "a.txt", content)
    with pytest.warns(UserWarning, match=f"a.txt looks like {re.escape(what)} are modelled as text; .* name it"):
        assert list(read(file)) == [content]
    with pytest.warns(UserWarning, match="looks like"):
        sm.data.text(file)


def test_text_is_not_taken_for_another_format(tmp_path: Path) -> None:
    for content in ("> quoted, he said\nso and so.\n", "[sic] he said\n", "In 1984\n"):
        assert list(read(write(tmp_path, "a.txt", content))) == [content]


# -- folders -----------------------------------------------------------------------------------------------------------


def test_a_folder_is_a_sequence_a_file_and_its_folders_are_labels(tmp_path: Path) -> None:
    for name, step in (("walk/a", 1.5), ("walk/b", 2.5), ("sit/c", 0.0)):
        write(tmp_path, f"{name}.csv", f"t,ax\n0,0.5\n1,{0.5 + step}\n")
    x = read(tmp_path)
    assert (x.names, x.labels, x.features, x.by) == (
        ["sit/c", "walk/a", "walk/b"],
        ["sit", "walk", "walk"],
        ("ax",),
        "file",
    )
    assert x.times is not None
    assert np.asarray(x["walk/b"]).tolist() == [[0.5], [3.0]]
    assert read(tmp_path, folders="cluster").clusters == ["sit", "walk", "walk"]
    assert read(tmp_path / "walk").labels is None


def test_a_folder_of_tables_is_read_as_one(tmp_path: Path) -> None:
    """Whether a column is of symbols, and which, is decided by all files."""
    write(tmp_path, "a.csv", "n\n0\n1\n")
    write(tmp_path, "b.csv", "n\n0.5\n1\n")
    assert read(tmp_path).kind == "vectors"
    write(tmp_path, "b.csv", "n\n7\n")
    assert read(tmp_path).describe() == "2 sequences, 3 symbols: 0 to 7; by file"
    write(tmp_path, "b.csv", "m\n7\n")
    with pytest.raises(ValueError, match=r"b.csv has the columns m but .*a.csv has n"):
        read(tmp_path)


def test_sequences_of_a_file_in_a_folder_are_in_its_cluster(tmp_path: Path) -> None:
    write(tmp_path, "a.fa", ">x\nAC\n>y\nA\n")
    write(tmp_path, "b.fa.gz", ">x\nG\n")
    write(tmp_path, "notes.pdf", "passed over")
    x = read(tmp_path)
    assert (x.names, x.symbols) == (["a:x", "a:y", "b"], ("A", "C", "G"))
    assert x.metadata["cluster"].tolist()[:2] == ["a", "a"]
    write(tmp_path, "t.csv", "subject,v\n1,0.5\n1,1\n2,2\n")
    (tmp_path / "a.fa").unlink()
    (tmp_path / "b.fa.gz").unlink()
    write(tmp_path, "u.csv", "subject,v\n1,7.5\n")
    assert read(tmp_path, by="subject").names == ["t:1", "t:2", "u:1"]


def test_folders_of_arrays_and_texts(tmp_path: Path) -> None:
    for name in ("p", "q"):
        (tmp_path / "arrays" / name).mkdir(parents=True)
        np.save(tmp_path / "arrays" / name / "x.npy", np.random.default_rng(0).normal(size=(3, 2)))
        write(tmp_path, f"texts/{name}.txt", "one\ntwo\n")
    x = read(tmp_path / "arrays")
    assert (x.names, x.labels, x.n_features) == (["p/x", "q/x"], ["p", "q"], 2)
    lines = read(tmp_path / "texts", unit="line")
    assert (list(lines), lines.clusters) == (["one", "two"] * 2, ["p", "p", "q", "q"])


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        read(tmp_path / "none")
    with pytest.raises(ValueError, match="has no file to read"):
        read(tmp_path)
    text = write(tmp_path, "a.txt", "a")
    with pytest.raises(ValueError, match="is not a table, so it has no columns; leave by out"):
        read(text, by="subject")
    with pytest.raises(ValueError, match="is text, which cannot be read as vectors"):
        read(text, kind="vectors")
    with pytest.raises(ValueError, match='kind is \'words\'; pass "vectors", "text", "symbols" or none'):
        read(text, kind="words")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="folders is 'names'"):
        read(tmp_path, folders="names")  # type: ignore[arg-type]
    series = write(tmp_path, "a.ts", "@data\n1,2\n")
    with pytest.raises(ValueError, match="holds vectors, so its kind is not 'text'"):
        read(series, kind="text")
    with pytest.raises(ValueError, match=r"files of several formats, \.ts, \.txt"):
        read(tmp_path)


# -- each format -------------------------------------------------------------------------------------------------------


def test_ts_reads_missing_values_padding_times_and_targets(tmp_path: Path) -> None:
    padded = "@problemName p\n# a comment\n@univariate false\n@classLabel true a b\n@data\n1,2,NaN:3,?,NaN:a\n"
    x = read(write(tmp_path, "a.ts", padded))
    np.testing.assert_array_equal(np.asarray(x[0]), [[1, 3], [2, np.nan]])
    timed = "@timeStamps true\n@targetLabel true\n@data\n(0,1.5),(2,3.5):(0,1),(2,0):7.5\n"
    y = read(write(tmp_path, "b.ts", timed))
    assert y.times is not None
    assert y.times[0].tolist() == [0, 2]
    assert y.metadata["target"].tolist() == [7.5]
    np.testing.assert_array_equal(np.asarray(y[0]), [[1.5, 1], [3.5, 0]])
    dates = "@timeStamps true\n@classLabel true a\n@data\n(2020-01-01 00:00:00,1),(2020-01-01 00:30:00,2):a\n"
    z = read(write(tmp_path, "c.ts", dates))
    assert z.times is not None
    assert z.times[0][1] == np.datetime64("2020-01-01T00:30")
    for content, said in (
        ("@data\n1,2:3\n", r"a.ts:2 has dimensions of lengths \[2, 1\]"),
        ("1,2\n", "a.ts:1 comes before @data"),
        ("@classLabel false\n", "has no line @data"),
        ("@data\n", "has no series after @data"),
        ("@data\n1,x\n", "a.ts:2 has a value that is not a finite number"),
    ):
        with pytest.raises(ValueError, match=said):
            read(write(tmp_path, "a.ts", content))


def test_fasta_headers_are_names(tmp_path: Path) -> None:
    x = read(write(tmp_path, "a.fasta", ">s1 first\n; a comment\n1 gat taca 10\n>s2\nACC\n"))
    assert x.names == ["s1", "s2"]
    assert x.metadata["description"].tolist() == ["first", ""]
    assert ["".join(item) for item in x] == ["GATTACA", "ACC"]
    for content, said in (("ACGT\n", "comes before the first header"), (">s1\n>s2\nA\n", "'s1' has no residues")):
        with pytest.raises(ValueError, match=said):
            read(write(tmp_path, "a.fasta", content))


def test_json_lines_of_all_kinds(tmp_path: Path) -> None:
    lines = [{"tokens": ["a", "b"], "label": "x", "id": 1}, {"tokens": ["b"], "label": "y", "id": 2}]
    x = read(write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n"))
    assert (x.symbols, x.labels, x.metadata["id"].tolist()) == (("a", "b"), ["x", "y"], [1, 2])
    assert read(write(tmp_path, "a.jsonl", '"to be"\n"or not"\n')).describe() == "2 texts, 11 bytes"
    frames = read(write(tmp_path, "a.jsonl", "[[1.5, null], [2, 3]]\n"))
    np.testing.assert_array_equal(np.asarray(frames[0]), [[1.5, np.nan], [2, 3]])
    assert read(write(tmp_path, "a.json", '{"s1": [0, 1], "s2": [1]}')).names == ["s1", "s2"]
    two = '{"en": "a dog", "fr": "un chien"}\n'
    assert list(read(write(tmp_path, "a.jsonl", two), columns="fr")) == ["un chien"]
    for content, said in (
        (two, "a.jsonl:1 has 2 keys that may hold it .en, fr.; name it"),
        ('"a"\n[\n', "a.jsonl:2 is not JSON"),
        ("3\n", "a.jsonl:1 is 3, which is not a sequence"),
        ("\n", "holds no values"),
        ("[0.5]\n", "sequence 0 has the fractional symbol"),
    ):
        with pytest.raises(ValueError, match=said):
            read(write(tmp_path, "a.jsonl", content))
    for content in ('["1.5", "2.5"]\n', '["10%", "12%"]\n'):
        with pytest.raises(ValueError, match=r"a.jsonl:1 holds numbers that are strings, such as '1.*kind='symbols'"):
            read(write(tmp_path, "a.jsonl", content))
        assert read(write(tmp_path, "a.jsonl", content), kind="symbols").kind == "symbols"
    assert read(write(tmp_path, "a.jsonl", '["1", "0"]\n')).symbols == ("0", "1")
    gap = read(write(tmp_path, "a.jsonl", "[1.5, null, 2]\n"), kind="vectors")
    np.testing.assert_array_equal(np.asarray(gap[0]), [[1.5], [np.nan], [2]])
    with pytest.raises(ValueError, match=r"if a line is a step, pass a table: pandas.read_json\(path, lines=True\)"):
        read(write(tmp_path, "a.jsonl", '{"t": 0, "y": 1.5}\n{"t": 1, "y": 2.5}\n'))
    with pytest.raises(ValueError, match="has no key 'de'"):
        read(write(tmp_path, "a.jsonl", two), columns="de")
    assert np.asarray(read(write(tmp_path, "a.jsonl", "[0.5, 2]\n"), kind="vectors")[0]).tolist() == [[0.5], [2]]


def test_numpy_files_of_what_is_no_array_of_numbers(tmp_path: Path) -> None:
    for array, said in (
        (np.array(["1.5", "2.5"]), "holds numbers that are strings, such as '1.5'"),
        (np.array([(1.5, 2)], dtype=[("a", "f8"), ("b", "f8")]), r"pass the table pandas.DataFrame\(array\) to"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "it holds datetime64"),
    ):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(ValueError, match=said):
            read(tmp_path / "a.npy")


def test_numpy_files(tmp_path: Path) -> None:
    a, b = np.arange(6.0).reshape(3, 2), np.arange(4.0).reshape(2, 2)
    np.savez(tmp_path / "named.npz", walk=a, sit=b)
    x = read(tmp_path / "named.npz")
    assert x.names == ["walk", "sit"]
    np.testing.assert_array_equal(np.asarray(x["sit"]), b)
    np.savez(tmp_path / "laid.npz", X=np.concatenate([a, b]), lengths=[3, 2], labels=["p", "q"])
    y = read(tmp_path / "laid.npz")
    assert (y.labels, y.n_units.tolist()) == (["p", "q"], [3, 2])
    np.save(tmp_path / "three.npy", np.stack([a, a + 1]))
    assert read(tmp_path / "three.npy").names == ["three:0", "three:1"]
    np.save(tmp_path / "reals.npy", np.array([0.5, 1]))
    assert np.asarray(read(tmp_path / "reals.npy")[0]).tolist() == [[0.5], [1]]
    np.save(tmp_path / "whole.npy", np.array([[0, 1], [1, 2]]))
    assert read(tmp_path / "whole.npy").kind == "vectors"
    assert [item.tolist() for item in map(np.asarray, read(tmp_path / "whole.npy", kind="symbols"))] == [[0, 1], [1, 2]]
    np.save(tmp_path / "words.npy", np.array(["sit", "walk"]))
    assert read(tmp_path / "words.npy").symbols == ("sit", "walk")
    np.save(tmp_path / "objects.npy", np.array([a, b], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"it holds Python objects: save arrays of numbers"):
        read(tmp_path / "objects.npy")
    with pytest.raises(ValueError, match="cannot be read as NumPy's file"):
        read(write(tmp_path, "a.npy", "no array"))


class Rows:
    """What is used of a Hugging Face dataset."""

    class ClassLabel:
        names = ("other", "name")

    class Tags:
        feature = None

    def __init__(self, rows: list[dict[str, object]], **features: object) -> None:
        self.rows, self.features = rows, features

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, object]:
        return self.rows[i]


def test_rows_of_a_dataset() -> None:
    labels, tags = Rows.ClassLabel(), Rows.Tags()
    tags.feature = labels  # type: ignore[assignment]
    rows = Rows(
        [{"tokens": ["Ann", "sat"], "tags": [1, 0], "kind": 1}, {"tokens": ["He"], "tags": [0], "kind": 0}],
        tags=tags,
        kind=labels,
    )
    x = sm.data.from_rows(rows, "tokens", label="kind")
    assert (x.symbols, x.labels) == (("Ann", "He", "sat"), ["name", "other"])
    y = sm.data.from_rows(rows, "tags")
    assert [item.tolist() for item in map(np.asarray, y)] == [["name", "other"], ["other"]]
    assert y.symbols == ("other", "name")
    texts = sm.data.from_rows(Rows([{"text": "to be", "n": 1}, {"text": "or", "n": 2}]), name="n")
    assert (list(texts), texts.names) == (["to be", "or"], [1, 2])
    with pytest.raises(ValueError, match=r"2 columns may hold the sequences \(tokens, tags\); name one: column="):
        sm.data.from_rows(rows)
    with pytest.raises(ValueError, match="the rows have no column 'words'; they have tokens, tags, kind"):
        sm.data.from_rows(rows, "words")
    with pytest.raises(ValueError, match="the dataset has splits, train; pass one of them"):
        sm.data.from_rows({"train": rows})


def test_what_is_read_is_fitted_and_comes_back(tmp_path: Path) -> None:
    """From a file of states to a file of states drawn from a model."""
    rng = np.random.default_rng(0)
    states = pd.DataFrame({"who": np.repeat(range(8), 10), "state": rng.choice(["sit", "walk"], 80)})
    states.to_csv(tmp_path / "states.csv", index=False)
    x = read(tmp_path / "states.csv", by="who")
    model = sm.NGram(2).fit(x)
    drawn = sm.Sequences(model.sample(3, random_state=0), symbols=model.symbol_names_, features=x.features)
    drawn.to_frame().to_csv(tmp_path / "drawn.csv", index=False)
    again = read(tmp_path / "drawn.csv")
    assert [item.tolist() for item in map(np.asarray, again)] == [item.tolist() for item in map(np.asarray, drawn)]
    assert model.score(again) == pytest.approx(model.score(drawn), rel=1e-6)
