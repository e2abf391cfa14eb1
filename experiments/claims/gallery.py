"""A page of all claims: each with what came out, its picture, and how to run it again."""

import ast
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

Said = dict[str, Any]  # what a script wrote into its JSON
FIGURE = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")

TITLE = "# Textbook claims, put to the test"
INTRODUCTION = (
    "Each claim is one script in `experiments/claims/`, split into parts that can be true or false by themselves. A "
    "part **held** if the interval of its effect lies on the side that was claimed, was **contradicted** if it lies on "
    "the other, and is **undecided** at this size otherwise; where there is one run of each, a margin takes the place "
    "of the interval. The first lines of a script state its rule. Rules with two outcomes were stated before any "
    "figure was seen; these with three replaced them afterwards, on the same measurements. Budgets are small and were "
    "not tuned: all of it is of this size and these data. Intervals are of 95 %, and wider where the best of several "
    "was picked. Minutes are of the clock, whatever else the machine did. `make experiments` runs them all and writes "
    "this page; `python experiments/claims --gallery` writes it from the results that are there."
)


def write_gallery(results: Path, page: Path, scripts: list[Path]) -> list[str]:
    """The page of those scripts that have a result, their pictures in a folder beside it; returns their names."""
    there = [path for path in scripts if (results / f"{path.stem}.json").exists()]
    found = {path.stem: json.loads((results / f"{path.stem}.json").read_text(encoding="utf-8")) for path in there}
    headings = {path.stem: heading(path) for path in there}
    pictures = page.with_suffix("")  # a folder of the page's name
    pictures.mkdir(parents=True, exist_ok=True)
    for name in found:
        shutil.copyfile(results / f"{name}.png", pictures / f"{name}.png")
    page.write_text(text(found, headings, pictures.name), encoding="utf-8")
    return list(found)


def heading(script: Path) -> str:
    """The first line of the script's docstring, which says what the claim is about."""
    said = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or script.stem
    return said.splitlines()[0].rstrip(".")


def text(found: dict[str, Said], headings: dict[str, str], pictures: str) -> str:
    """The page's Markdown; pictures lie in the folder ``pictures`` beside it."""
    sections = [_section(name, said, headings[name], pictures) for name, said in found.items()]
    return "\n\n".join([TITLE, _answer(found), INTRODUCTION, _table(found, headings), *sections]) + "\n"


def _answer(found: dict[str, Said]) -> str:
    """The page's first sentence: how many parts of the claims held."""
    verdicts = [part["verdict"] for said in found.values() for part in said["parts"]]
    held, contradicted = verdicts.count("held"), verdicts.count("contradicted")
    return (
        f"Of {len(verdicts)} statements that textbooks make about sequence models, {held} held here, {contradicted} "
        f"were contradicted, and {len(verdicts) - held - contradicted} could not be decided at this size."
    )


def _table(found: dict[str, Said], headings: dict[str, str]) -> str:
    rows = []
    for name, said in found.items():
        for i, part in enumerate(said["parts"]):
            question = f"[{_plain(headings[name])}](#{name})" if i == 0 else ""
            rows.append(f"| {question} | {_plain(part['claim'])} | {part['verdict']} |")
    return "\n".join(["| question | the textbooks' claim | here |", "| --- | --- | --- |", *rows])


def _section(name: str, said: Said, title: str, pictures: str) -> str:
    parts = [
        f'<a id="{name}"></a>',
        f"## {_plain(title)}",
        f"*{_plain(said['claim'])}*",
        "\n".join(
            f"- **{part['verdict'].capitalize()}**: {_plain(part['claim'])}. {_plain(_capitalised(part['seen']))}."
            for part in said["parts"]
        ),
        *([_plain(_capitalised(said["sentence"]))] if _says_more(said) else []),
        f"![{_plain(title)}]({pictures}/{name}.png)",
        _small_print(name, said),
    ]
    return "\n\n".join(parts)


def _says_more(said: Said) -> bool:
    """Whether the sentence has a figure that none of the parts has."""
    seen = " ".join(part["seen"] for part in said["parts"])
    return not set(FIGURE.findall(said["sentence"])) <= set(FIGURE.findall(seen))


def _small_print(name: str, said: Said) -> str:
    hardware, seconds = said["hardware"], said["seconds"]
    took = f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
    threads = f"{hardware['threads']} thread{'s' * (hardware['threads'] != 1)}"
    where = html.escape(f"{hardware['processor']}, {threads}, torch {said['versions']['torch']}")
    ran = f"{'quick sizes, ' * said['quick']}{took} on {where}, {said['date'][:10]}"
    return f"<small>`python experiments/claims/{name}.py`: {ran}.</small>"


def _capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _plain(sentence: str) -> str:
    """Characters that Markdown would read as marks, as themselves."""
    return "".join(f"\\{c}" if c in "*_<>`|" else c for c in sentence)
