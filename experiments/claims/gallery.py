"""A page of all claims: each with what came out, its picture, and how to run it again."""

import html
import json
import shutil
from pathlib import Path
from typing import Any

TITLE = "# Textbook claims, put to the test"
INTRODUCTION = (
    "Each claim is one script in `experiments/claims/`, whose first lines state the rule by which it holds before any figure was seen. "
    "Budgets are small and were not tuned until a claim held: that one did not hold here, at this size and on this data, is a result too. "
    "Intervals are of 95 %. This page is written by `make experiments`, or, from results that are there, by "
    "`python experiments/claims --gallery`."
)


def write_gallery(results: Path, page: Path) -> list[str]:
    """The page from every ``NAME.json`` in ``results``, pictures beside it; returns the names it shows."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    pictures = page.with_suffix("")  # a folder of the page's name
    pictures.mkdir(parents=True, exist_ok=True)
    for name in found:
        shutil.copyfile(results / f"{name}.png", pictures / f"{name}.png")
    page.write_text(text(found, pictures.name), encoding="utf-8")
    return list(found)


def text(found: dict[str, dict[str, Any]], pictures: str) -> str:
    """The page's Markdown; pictures lie in the folder ``pictures`` beside it."""
    sections = [_section(name, said, pictures) for name, said in found.items()]
    return "\n\n".join([TITLE, INTRODUCTION, _table(found), *sections]) + "\n"


def _table(found: dict[str, dict[str, Any]]) -> str:
    rows = [f"| [{_title(name)}](#{_anchor(name)}) | {_outcome(said)} |" for name, said in found.items()]
    return "\n".join(["| claim | here |", "| --- | --- |", *rows])


def _section(name: str, said: dict[str, Any], pictures: str) -> str:
    parts = [
        f"## {_title(name)}",
        f"*{_plain(said['claim'])}*",
        f"**{_outcome(said).capitalize()}**: {_plain(said['sentence'])}",
        f"![{_title(name)}]({pictures}/{name}.png)",
        f"```sh\npython experiments/claims/{name}.py\n```",
        _small_print(said),
    ]
    return "\n\n".join(parts)


def _small_print(said: dict[str, Any]) -> str:
    hardware, versions = said["hardware"], said["versions"]
    minutes = f"{said['seconds'] / 60:.1f} min" if said["seconds"] >= 60 else f"{said['seconds']:.0f} s"
    quick = "quick sizes, " if said["quick"] else ""
    where = f"{hardware['processor']}, {hardware['threads']} thread{'s' * (hardware['threads'] != 1)}"
    return f"<small>{quick}{minutes} on {html.escape(where)}, {said['date'][:10]}, torch {versions['torch']}.</small>"


def _outcome(said: dict[str, Any]) -> str:
    return "held" if said["held"] else "did not hold"


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _anchor(name: str) -> str:
    """As both GitHub and Python-Markdown make it of the heading."""
    return name.replace("_", "-")


def _plain(sentence: str) -> str:
    """Characters that Markdown would read as marks, as themselves."""
    return "".join(f"\\{c}" if c in "*_<>`[]" else c for c in sentence)
