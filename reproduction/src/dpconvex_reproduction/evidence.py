"""``dpconvex reproduce evidence``: tables of README and docs/evidence, written from the results of the last runs.

A table stands between ``<!-- evidence: NAME -->`` and ``<!-- end of evidence -->``. Accuracy comes from the
benchmark's Parquet file, speed from the JSON file of ``python -m benchmarks``, coverage from what ``make coverage``
stores: so no number on these pages is typed in.
"""

from __future__ import annotations

import json
import re
import statistics
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dpconvex.cli.output_and_errors import output_console, reports_errors
from dpconvex.inputs import InputError
from dpconvex_reproduction.bench.page import Contest, best_settings, contests
from dpconvex_reproduction.bench.problems import TASKS
from dpconvex_reproduction.exhibit import Row, select
from dpconvex_reproduction.pages import markdown_table

__all__ = ["PAGES", "TABLES", "filled", "load_results", "main"]

#: Pages with such tables, from the root of the repository.
PAGES = ("README.md", "docs/evidence/cost.md", "docs/evidence/peers.md", "docs/evidence/scale.md")
BENCH = "docs/reproduction/bench/results.parquet"
SPEED = "docs/evidence/speed.json"
GROWTH = "docs/evidence/growth.json"
COVERAGE = "docs/evidence/coverage.txt"
_BLOCK = re.compile(r"(<!-- evidence: ([a-z ]+) -->\n)(.*?)(<!-- end of evidence -->)", re.DOTALL)
_OURS = "dpconvex"
_SHOWN = {"logistic": "log_loss", "linear": "r2", "quantile": "pinball"}
_WORDS = {"log_loss": "log loss", "auc": "AUC", "accuracy": "accuracy", "r2": "R²", "pinball": "pinball loss"}
_RELATION = "add_or_remove_one"


def load_results(root: Path) -> dict[str, list[Row]]:
    """Return benchmark fits, speeds with their machines and line coverage of a checkout; empty lists of what is not."""
    import polars as pl

    bench, coverage = root / BENCH, root / COVERAGE
    timed = {
        name: json.loads((root / path).read_text(encoding="utf-8"))
        for name, path in (("speed", SPEED), ("growth", GROWTH))
        if (root / path).is_file()
    }
    return {
        "fits": pl.read_parquet(bench).to_dicts() if bench.is_file() else [],
        **{name: timed[name]["measurements"] if name in timed else [] for name in ("speed", "growth")},
        **{f"{name} machine": [timed[name]["machine"]] if name in timed else [] for name in ("speed", "growth")},
        "coverage": [{"percent": float(coverage.read_text(encoding="utf-8"))}] if coverage.is_file() else [],
    }


def _means(fits: Sequence[Row], task: str, metric: str) -> list[Row]:
    return best_settings(select(fits, task=task), metric, TASKS[task.partition(" ")[0]][metric])


def cost_table(results: dict[str, list[Row]], short: bool = False) -> list[str]:
    """Return what our plain default reaches on every problem and budget, beside the fit without privacy.

    In short, without problems of one column and with one metric each.
    """
    fits, lines = [row for row in results["fits"] if row["columns"] > 1 or not short], []
    budgets = sorted({row["epsilon"] for row in fits if row["epsilon"] is not None})
    for data, task in dict.fromkeys((row["data"], row["task"]) for row in fits):
        here = select(fits, data=data, task=task)
        kind = task.partition(" ")[0]
        for metric in ("accuracy", "log_loss")[: 1 if short else 2] if kind == "logistic" else (_SHOWN[kind],):
            means = _means(here, task, metric)
            ours = {row["epsilon"]: row[metric] for row in select(means, method=_OURS, relation=_RELATION)}
            plain = [row[metric] for row in means if not row["relation"]]
            line: Row = {"data": data, "training rows": f"{here[0]['train_rows']:,}", "columns": here[0]["columns"]}
            line["task"] = f"{task}, {_WORDS[metric]}"
            line |= {f"ε = {epsilon:g}": _figures(ours.get(epsilon)) for epsilon in budgets}
            line["without privacy"] = _figures(plain[0] if plain else None)
            lines.append(line)
    return markdown_table(lines)


def _figures(number: float | None) -> str:
    if number is None:
        return "–"
    return f"{number:.3f}" if abs(number) < 10 else f"{number:.4g}"


def _main_contests(results: dict[str, list[Row]]) -> list[Contest]:
    """Return contests of our plain default on the first metric of every task."""
    kinds = [c for c in contests(results["fits"]) if c.ours == _OURS]
    return [c for c in kinds if c.metric == _SHOWN[c.setting[1].partition(" ")[0]]]


def peers_table(results: dict[str, list[Row]], most: int | None = None) -> list[str]:
    """Return where our plain default is worse, level or better than each peer, on the first metric of every task.

    Parameters
    ----------
    results : dict
        Stored results.
    most : int, optional
        Show so many peers only, those first that we are least often better than.
    """
    held = _main_contests(results)
    lines: list[Row] = []
    for peer in dict.fromkeys(contest.peer for contest in held):
        here = [contest for contest in held if contest.peer == peer]
        words = [contest.verdict for contest in here]
        tasks = dict.fromkeys(contest.setting[1].partition(" ")[0] for contest in here)
        counts = {name: words.count(word) for name, word in (("worse", "loss"), ("tie", "tie"), ("better", "win"))}
        lines.append({"peer": peer, **counts, "tasks": ", ".join(tasks)})
    total = {name: sum(line[name] for line in lines) for name in ("worse", "tie", "better")}
    peers = len(lines)
    if most is not None:
        lines = sorted(lines, key=lambda line: line["better"] / (line["worse"] + line["tie"] + line["better"]))[:most]
    return markdown_table([*lines, {"peer": f"all {peers}", **total, "tasks": ""}])


def _best_peers(results: dict[str, list[Row]]) -> list[Contest]:
    """Return the contest with the best peer of every problem and budget.

    Only under the relation of nearly all peers: under the other one diffprivlib would win or lose alone.
    """
    best: dict[tuple[Any, ...], Contest] = {}
    for contest in _main_contests(results):
        key = contest.setting
        if key[2] != _RELATION:
            continue
        if key not in best or contest.ahead < best[key].ahead:
            best[key] = contest
    return list(best.values())


def best_peers_table(results: dict[str, list[Row]]) -> list[str]:
    """Return our plain default beside the best peer of every problem and budget, losses first."""
    order = {"loss": 0, "tie": 1, "win": 2, "one seed": 3}
    held = sorted(_best_peers(results), key=lambda contest: order[contest.verdict])  # stable: by problem and budget
    lines = [
        {
            "": contest.verdict,
            "data": contest.setting[0],
            "task": f"{contest.setting[1]}, {_WORDS[contest.metric]}",
            "epsilon": contest.setting[3],
            "dpconvex": _figures(contest.mine),
            "best peer": _figures(contest.theirs),
            "which": contest.peer,
            "ahead by": f"{contest.ahead:.2g} ± {contest.error:.1g}",
        }
        for contest in held
    ]
    return markdown_table(lines)


def in_short(results: dict[str, list[Row]]) -> list[str]:
    """Return two sentences: what our plain default costs at epsilon 1, and how it compares with the best peer."""
    ratios = []
    for data, task in dict.fromkeys((row["data"], row["task"]) for row in results["fits"]):
        metric = _SHOWN[task.partition(" ")[0]]
        means = _means(select(results["fits"], data=data), task, metric)
        ours = [row[metric] for row in select(means, method=_OURS, relation=_RELATION, epsilon=1.0)]
        plain = [row[metric] for row in means if not row["relation"]]
        if ours and plain:
            mine, exact = (1 - ours[0], 1 - plain[0]) if metric == "r2" else (ours[0], plain[0])
            ratios.append(100 * (mine / exact - 1))
    if not ratios:
        return ["(no rows)"]
    words = [contest.verdict for contest in _best_peers(results)]
    peers = len({contest.peer for contest in _main_contests(results) if contest.setting[2] == _RELATION})
    low, middle, high = (
        f"{abs(number):.1f} % {'below' if number < 0 else 'above'}"
        for number in (min(ratios), statistics.median(ratios), max(ratios))
    )
    return textwrap.wrap(
        f"Untuned, at ε = 1 for one record added or removed (the default, one record replaced, is stricter), errors on "
        f"test rows of {len(ratios)} tasks on public tables are between {low} and {high} those of fits without "
        f"privacy, {middle} in the median. Against the best of {peers} private methods with that promise, chosen with "
        f"hindsight for every task and budget: worse in {words.count('loss')}, too close to tell with the seeds run in "
        f"{words.count('tie')}, better in {words.count('win')}.",
        120,
    )


def speed_table(results: dict[str, list[Row]], name: str = "speed") -> list[str]:
    """Return measured times and memory, or how they grow, with their bars."""
    lines = [
        {
            "measured": row["name"],
            "value": f"{row['value']:.3g}",
            "bar": "" if row["bar"] is None else f"{'at most' if row['at_most'] else 'at least'} {row['bar']:g}",
            "missed": "" if row["passed"] else "missed",
            "behind it": row["detail"],
        }
        for row in results[name]
    ]
    return markdown_table(lines)


def machine_sentences(results: dict[str, list[Row]], name: str = "speed") -> list[str]:
    """Return on what machine times were measured, and whether other work ran beside when that began."""
    for machine in results[f"{name} machine"]:
        load, cores = machine["load"][0], machine["cores"]
        count = f"{cores} core{'s' * (cores != 1)}"
        beside = "other work ran beside, and seconds are longer for it" if load > cores / 2 else "little else ran"
        return textwrap.wrap(
            f"Measured on {count} of a machine with the processor {machine['processor']}, with Python "
            f"{machine['python']}, NumPy {machine['packages']['numpy']} and scikit-learn "
            f"{machine['packages']['scikit-learn']}. Its load at the start was {load:.1f} on {count}: {beside}.",
            120,
        )
    return ["(no rows)"]


def coverage_sentence(results: dict[str, list[Row]]) -> list[str]:
    """Return which share of the library's lines the tests run."""
    return [
        f"The tests run {row['percent']:g} % of the library's lines, compiled kernels and other processes aside "
        "(`make coverage`)."
        for row in results["coverage"]
    ] or ["(no rows)"]


TABLES: dict[str, Callable[[dict[str, list[Row]]], list[str]]] = {
    "in short": in_short,
    "cost": cost_table,
    "cost in short": partial(cost_table, short=True),
    "peers": peers_table,
    "peers in short": partial(peers_table, most=5),
    "best peers": best_peers_table,
    "speed": speed_table,
    "speed machine": machine_sentences,
    "growth": partial(speed_table, name="growth"),
    "growth machine": partial(machine_sentences, name="growth"),
    "coverage": coverage_sentence,
}


def filled(text: str, results: dict[str, list[Row]]) -> str:
    r"""Return a page with its tables written from results.

    Examples
    --------
    >>> filled("<!-- evidence: cost -->\nold\n<!-- end of evidence -->", {"fits": []})
    '<!-- evidence: cost -->\n\n(no rows)\n\n<!-- end of evidence -->'
    """

    def written(found: re.Match[str]) -> str:
        name = found.group(2)
        if name not in TABLES:
            raise InputError(f"There is no table '{name}'. There are: {', '.join(TABLES)}.")
        return found.group(1) + "\n" + "\n".join(TABLES[name](results)) + "\n\n" + found.group(4)

    return _BLOCK.sub(written, text)


app = typer.Typer(add_completion=False)


def main(words: list[str]) -> None:
    """Run the command with these words."""
    app(words, prog_name="dpconvex reproduce evidence")


@app.command()
@reports_errors
def evidence(root: Annotated[Path, typer.Option(help="A checkout of the repository.")] = Path()) -> None:
    """Write the tables of README and docs/evidence from the results that were stored there."""
    results = load_results(root)
    for name in PAGES:
        page = root / name
        if not page.is_file():
            raise InputError(f"There is no page {name} here. Run this at the root of a checkout.")
        page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    output_console().print(
        f"Written: {', '.join(PAGES)} ({len(results['fits'])} fits, {len(results['speed'])} speeds)", markup=False
    )
