"""Results on disk: latest.json, and latest.md made from it. A part that runs again replaces its own section only."""

import json
import re
from pathlib import Path
from typing import Any

from bench.measures import FIRN

# What a line is about, if its own text is not clear outside of its part.
ABOUT = {"2": "WRITE of 1 row: ", "3": "one client, ", "8": "COMPACT, "}
RATE = re.compile(r"rows/s, ([\d,]+) clients?")
TOOLS = ("PyIceberg", "Duck", "PySpark")
HEAD = "| part | what | who | median | p95 | n | Firn's median / this | notes |"


def merged(old: dict[str, Any], number: int, section: dict[str, Any]) -> dict[str, Any]:
    """The results with one part's section put in or replaced."""
    parts = {**old.get("parts", {}), str(number): section}
    return {**old, "parts": dict(sorted(parts.items(), key=lambda item: int(item[0])))}


def read(folder: Path) -> dict[str, Any]:
    try:
        results: dict[str, Any] = json.loads((folder / "latest.json").read_text())
    except FileNotFoundError:
        return {}
    return results


def write(folder: Path, results: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    (folder / "latest.md").write_text(markdown(results))


def markdown(results: dict[str, Any]) -> str:
    """The results for people: the claims, the table, and the machine."""
    parts = results.get("parts", {})
    text = ["# Measurements", "", "Made by `make bench`; how to read them: docs/explanation/benchmarks.md.", ""]
    claims = [claim for part in parts.values() for claim in part.get("claims", [])]
    if claims:
        text += ["## What this must show", "", "| claim | target | measured | met |", "|---|---|---|---|"]
        text += [_claim_row(claim) for claim in claims] + [""]
    text += ["## Measured", "", HEAD, "|---|---|---|--:|--:|--:|--:|---|"]
    for number, part in parts.items():
        text += [_row(number, line, part["lines"]) for line in part.get("lines", [])]
        if part.get("error"):
            text.append(f"| {number} | {_cell(part['title'])} | | | | | | did not finish: {_cell(part['error'])} |")
    text += ["", "## Where", ""]
    text += [f"- {key}: {value}" for key, value in results.get("machine", {}).items()]
    for number, part in parts.items():
        text.append(f"- part {number}, {part['title']}: {part['at']}, {part['seconds']} s, commit {part['commit']}")
    return "\n".join(text) + "\n"


def comparison(results: dict[str, Any]) -> str:
    """For the README: everything that was measured of Firn and of another tool, the best figure of each row in bold."""
    rows = []
    for number, part in results["parts"].items():
        for ours in part["lines"]:
            peers = [line for line in part["lines"] if _comparable(ours, line)]
            if ours["who"] == FIRN and ours["median"] and peers:
                rows.append(_comparison_row(ABOUT.get(number, "") + ours["what"], ours, peers))
    days = sorted(part["at"].split()[0] for part in results["parts"].values())
    machine = results["machine"]
    # Parts are measured apart, and only the last one's machine is known here.
    where = f"Medians, {days[0]} to {days[-1]}. Not all rows are from one machine, so compare within a row. "
    where += f"Cores of the last part: {machine['cores']}; {machine['versions']}."
    head = ["| measured | Firn | PyIceberg | DuckDB, DuckLake | PySpark |", "|---|--:|--:|--:|--:|"]
    return "\n".join([*head, *rows, "", where])


def _comparison_row(what: str, ours: dict[str, Any], peers: list[dict[str, Any]]) -> str:
    best = max if ours["unit"] == "rows/s" else min
    of_tools = [[line["median"] for line in peers if line["who"].startswith(tool)] for tool in TOOLS]
    figures = [ours["median"], *(best(medians, default=None) for medians in of_tools)]
    winner = best(figure for figure in figures if figure)
    cells = [_figure(figure, ours["unit"]) for figure in figures]
    cells = [f"**{cell}**" if figure == winner else cell for figure, cell in zip(figures, cells, strict=True)]
    return f"| {' | '.join([_cell(what), *cells])} |"


def _comparable(ours: dict[str, Any], line: dict[str, Any]) -> bool:
    """Whether another tool did the same work; a rate with fewer clients counts, too, if the tool is faster then."""
    if line["who"].startswith(FIRN) or not line["median"]:
        return False
    mine, other = RATE.fullmatch(ours["what"]), RATE.fullmatch(line["what"])
    if mine and other:
        return int(other[1].replace(",", "")) <= int(mine[1].replace(",", ""))
    return bool(line["what"] == ours["what"])


def _claim_row(claim: dict[str, Any]) -> str:
    at = "most" if "at_most" in claim else "least"
    met = {True: "yes", False: "**no**", None: "not measured"}[claim["met"]]
    measured = "–" if claim["measured"] is None else f"{claim['measured']:g}"
    return f"| {_cell(claim['claim'])} | at {at} {claim[f'at_{at}']:.3g} | {measured} | {met} |"


def _row(number: str, line: dict[str, Any], lines: list[dict[str, Any]]) -> str:
    figures = [_figure(line["median"], line["unit"]), _figure(line["p95"], line["unit"]) if line["n"] > 2 else "–"]
    cells = [number, line["what"], line["who"], *figures, str(line["n"]), _against_firn(line, lines), line["note"]]
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _against_firn(line: dict[str, Any], lines: list[dict[str, Any]]) -> str:
    ours = [other for other in lines if other["who"] == FIRN and other["what"] == line["what"]]
    if line["who"] == FIRN or not ours or not ours[0]["median"] or not line["median"]:
        return ""
    return f"{ours[0]['median'] / line['median']:.2f}"


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
