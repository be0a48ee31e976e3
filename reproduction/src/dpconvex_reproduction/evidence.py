"""``dpconvex reproduce evidence``: tables of README and docs/evidence, written from the results of
the last runs.

A table stands between ``<!-- evidence: NAME -->`` and ``<!-- end of evidence -->``. Accuracy comes
from the benchmark's Parquet file, speed from the JSON file of ``python -m benchmarks``, coverage
from what ``make coverage`` stores: so no number on these pages is typed in.
"""

from __future__ import annotations

import json
import math
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
from dpconvex.system.atomic_files import write_file_atomically
from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, REPLACE
from dpconvex_reproduction.bench.page import Contest, best_settings, contests, spoken
from dpconvex_reproduction.bench.problems import LOOKED_AT, TASKS
from dpconvex_reproduction.exhibit import Row, select
from dpconvex_reproduction.pages import markdown_table

__all__ = ["PAGES", "TABLES", "filled", "load_results", "main"]

#: Pages with such tables, from the root of the repository.
PAGES = ("README.md", *(f"docs/evidence/{name}.md" for name in ("cost", "index", "peers", "scale")))
BENCH = "docs/reproduction/bench/results.parquet"
SPEED = "docs/evidence/speed.json"
GROWTH = "docs/evidence/growth.json"
COVERAGE = "docs/evidence/coverage.txt"
_BLOCK = re.compile(r"(<!-- evidence: ([a-z ]+) -->\n)(.*?)(<!-- end of evidence -->)", re.DOTALL)
_OURS = "dpconvex"
_SHOWN = {"logistic": "log_loss", "linear": "r2", "quantile": "pinball"}
_WORDS = {
    "log_loss": "log loss",
    "auc": "AUC",
    "accuracy": "accuracy",
    "r2": "R²",
    "pinball": "pinball loss",
}
# of most peers, and of our estimators
_RELATION = ADD_OR_REMOVE
_DEFAULT = REPLACE
_EXACT = "scikit-learn, not private"
_CONSTANT = "constant, not private"


def load_results(root: Path) -> dict[str, list[Row]]:
    """Return benchmark fits, speeds with their machines and line coverage of a checkout; empty
    lists of what is not.
    """
    import polars as pl

    bench = root / BENCH
    coverage = root / COVERAGE
    timed = {
        name: json.loads((root / path).read_text(encoding="utf-8"))
        for name, path in (("speed", SPEED), ("growth", GROWTH))
        if (root / path).is_file()
    }
    return {
        "fits": pl.read_parquet(bench).to_dicts() if bench.is_file() else [],
        **{
            name: timed[name]["measurements"] if name in timed else []
            for name in ("speed", "growth")
        },
        **{
            f"{name} machine": [timed[name]["machine"]] if name in timed else []
            for name in ("speed", "growth")
        },
        "coverage": [{"percent": float(coverage.read_text(encoding="utf-8"))}]
        if coverage.is_file()
        else [],
    }


def _means(fits: Sequence[Row], task: str, metric: str) -> list[Row]:
    return best_settings(select(fits, task=task), metric, TASKS[task.partition(" ")[0]][metric])


def cost_table(results: dict[str, list[Row]], short: bool = False) -> list[str]:
    """Return what our plain default reaches on every problem and budget, beside a constant and a
    fit without privacy.

    In short, without problems of one column and with one metric each.
    """
    fits = [row for row in results["fits"] if row["columns"] > 1 or not short]
    lines = []
    budgets = sorted({row["epsilon"] for row in fits if row["epsilon"] is not None})
    for data, task in dict.fromkeys((row["data"], row["task"]) for row in fits):
        here = select(fits, data=data, task=task)
        kind = task.partition(" ")[0]
        for metric in (
            ("accuracy", "log_loss")[: 1 if short else 2] if kind == "logistic" else (_SHOWN[kind],)
        ):
            means = _means(here, task, metric)
            ours = {
                row["epsilon"]: row[metric]
                for row in select(means, method=_OURS, relation=_DEFAULT)
            }
            line: Row = {"data": _marked(data), "training rows": f"{here[0]['train_rows']:,}"}
            line |= {"columns": here[0]["columns"], "task": f"{task}, {_WORDS[metric]}"}
            line["a constant"] = _figures(_level(means, _CONSTANT, metric))
            line |= {f"ε = {epsilon:g}": _figures(ours.get(epsilon)) for epsilon in budgets}
            line["without privacy"] = _figures(_level(means, _EXACT, metric))
            lines.append(line)
    return markdown_table(lines)


def _marked(data: str) -> str:
    """Return the name of a data set, with a dagger if constants of the default were chosen with
    it in sight.
    """
    return f"{data} †" if data in LOOKED_AT else data


def _level(means: Sequence[Row], method: str, metric: str) -> float | None:
    """Return what a method without privacy reaches."""
    found = [row[metric] for row in select(means, method=method)]
    return found[0] if found else None


def _figures(number: float | None) -> str:
    if number is None:
        return "–"
    if abs(number) < 5e-4:
        return "0.000"  # not -0.000
    return f"{number:.3f}" if abs(number) < 10 else f"{number:.4g}"


def _main_contests(results: dict[str, list[Row]]) -> list[Contest]:
    """Return contests of our plain default on the first metric of every task."""
    kinds = [c for c in contests(results["fits"]) if c.ours == _OURS]
    return [c for c in kinds if c.metric == _SHOWN[c.setting[1].partition(" ")[0]]]


def peers_table(results: dict[str, list[Row]]) -> list[str]:
    """Return where our plain default is worse, level or better than each peer, on the first
    metric of every task.
    """
    held = _main_contests(results)
    lines: list[Row] = []
    for peer, relation in dict.fromkeys((contest.peer, contest.setting[2]) for contest in held):
        here = [
            contest for contest in held if (contest.peer, contest.setting[2]) == (peer, relation)
        ]
        words = [contest.verdict for contest in here]
        tasks = dict.fromkeys(contest.setting[1].partition(" ")[0] for contest in here)
        behind = sum(
            word == "tie" and contest.ahead < 0 for word, contest in zip(words, here, strict=True)
        )
        counts = {
            "worse": words.count("loss"),
            "tie, behind": behind,
            "tie, ahead": words.count("tie") - behind,
        }
        counts["better"] = words.count("win")
        settings = max(row["settings"] for row in results["fits"] if row["method"] == peer)
        lines.append(
            {
                "peer": peer,
                **counts,
                "tasks": ", ".join(tasks),
                "settings": settings,
                "neighbours": spoken(relation),
            }
        )
    lines.sort(key=lambda line: (-line["worse"], -line["tie, behind"], line["better"]))
    return markdown_table(lines)


def _best_peers(results: dict[str, list[Row]]) -> list[Contest]:
    """Return the contest with the best peer of every problem and budget.

    Only under the relation of nearly all peers: under the other one diffprivlib would win or lose
    alone.
    """
    best: dict[tuple[Any, ...], Contest] = {}
    for contest in _main_contests(results):
        key = contest.setting
        if key[2] != _RELATION:
            continue
        if key not in best or contest.ahead < best[key].ahead:
            best[key] = contest
    return list(best.values())


def losses_in_short(results: dict[str, list[Row]]) -> list[str]:
    """Return where some peer is clearly better than our plain default, the best one of each
    problem and budget.
    """
    by_problem: dict[tuple[str, str], list[Contest]] = {}
    for contest in _best_peers(results):
        if contest.verdict == "loss":
            by_problem.setdefault((contest.setting[0], contest.setting[1]), []).append(contest)
    others: dict[str, list[str]] = {}
    for c in contests(results["fits"]):
        shown = c.metric == _SHOWN[c.setting[1].partition(" ")[0]]
        if c.ours == _OURS and c.verdict == "loss" and c.setting[2] == _RELATION and not shown:
            place = f"{c.setting[0]} at ε = {c.setting[3]:g}"
            if place not in others.setdefault(_WORDS[c.metric], []):
                others[_WORDS[c.metric]].append(place)
    more = [
        line
        for metric, places in others.items()
        for line in textwrap.wrap(
            f"- by {metric}: {', '.join(places)}", 120, subsequent_indent="  "
        )
    ]
    if not by_problem and not more:
        return ["No peer is clearly better anywhere."]
    lines: list[str] = []
    for (data, task), found in by_problem.items():
        numbers = [
            f"{c.peer} at ε = {c.setting[3]:g} ({_WORDS[c.metric]} {c.theirs:.4g}, ours "
            f"{c.mine:.4g})"
            for c in found
        ]
        lines += textwrap.wrap(
            f"- {_marked(data)}, {task}: {', '.join(numbers)}", 120, subsequent_indent="  "
        )
    return lines + more


def best_peers_table(results: dict[str, list[Row]]) -> list[str]:
    """Return our plain default beside the best peer of every problem and budget, losses first."""
    order = {"loss": 0, "tie": 1, "win": 2, "one seed": 3}
    held = sorted(
        _best_peers(results), key=lambda contest: order[contest.verdict]
    )  # stable: by problem and budget
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
    """Return what our plain default costs under its own relation, and how it compares with the
    best peer.
    """
    lost: dict[float, dict[tuple[str, str], float]] = {1.0: {}, 0.1: {}}
    for data, task in dict.fromkeys((row["data"], row["task"]) for row in results["fits"]):
        metric = _SHOWN[task.partition(" ")[0]]
        means = _means(select(results["fits"], data=data), task, metric)
        exact = _level(means, _EXACT, metric)
        constant = _level(means, _CONSTANT, metric)
        for epsilon, shares in lost.items():
            ours = select(means, method=_OURS, relation=_DEFAULT, epsilon=epsilon)
            if ours and exact is not None and constant is not None:
                shares[data, task] = 100 * (ours[0][metric] - exact) / (constant - exact)
    if not all(lost.values()):
        return ["(no rows)"]
    tables = {data.partition(" ")[0] for data, _ in lost[1.0]}
    costs = [
        f"{statistics.median(shares.values()):.1f} % in the median and at most "
        f"{max(shares.values()):.0f} %"
        for shares in lost.values()
    ]
    held = _best_peers(results)
    words = [contest.verdict for contest in held]
    behind = sum(contest.verdict == "tie" and contest.ahead < 0 for contest in held)
    budgets = len({contest.setting[3] for contest in held})
    rivals: dict[tuple[str, str], set[str]] = {}
    for contest in _main_contests(results):
        if contest.setting[2] == _RELATION:
            rivals.setdefault(contest.setting[:2], set()).add(contest.peer)
    peers = len(set().union(*rivals.values()))
    numbers = sorted(map(len, rivals.values()))
    count = f"{numbers[0]} to {numbers[-1]} ({peers} in all)" if numbers[0] < peers else f"{peers}"
    return textwrap.wrap(
        f"On {len(lost[1.0])} tasks of {len(tables)} public tables, fits with nothing set but "
        f"bounds and budget lose {costs[0]} of what their columns bring over the best constant at "
        f"ε = 1, {costs[1]} at ε = 0.1 (one record replaced, the default). Against the best of "
        f"{count} private methods, each in its best setting, chosen with hindsight and not "
        f"charged, at {budgets} budgets (one record added or removed), by log loss, R² or pinball "
        f"loss: worse in {words.count('loss')}, too close to tell in {words.count('tie')} (the "
        f"other is ahead in {behind}), better in {words.count('win')}.",
        120,
    )


def speed_table(results: dict[str, list[Row]], name: str = "speed") -> list[str]:
    """Return measured times and memory, or how they grow, with their bars."""
    lines = [
        {
            "measured": row["name"],
            "value": f"{row['value']:.3g}",
            "bar": ""
            if row["bar"] is None
            else f"{'at most' if row['at_most'] else 'at least'} {row['bar']:g}",
            "missed": "" if row["passed"] else "missed",
            "behind it": row["detail"],
        }
        for row in results[name]
    ]
    return markdown_table(lines)


def machine_sentences(results: dict[str, list[Row]], name: str = "speed") -> list[str]:
    """Return on what machine times were measured, and whether other work ran beside when that
    began.
    """
    for machine in results[f"{name} machine"]:
        cores = machine["cores"]
        seen = [machine.get(word, math.nan) for word in ("busy", "busy at the end")]
        busy = math.nan if any(map(math.isnan, seen)) else max(seen)
        count = f"{cores} core{'s' * (cores != 1)}"
        beside = "Whether other work ran beside is not known."
        if math.isfinite(busy):
            end = "seconds are longer for it" if busy > 0.2 else "next to nothing ran beside"
            beside = f"Before and after, other work kept at most {busy:.1f} of {count} busy: {end}."
        return textwrap.wrap(
            f"Measured at {machine['made']} on {count} of a machine with the processor "
            f"{machine['processor']}, with Python {machine['python']}, NumPy "
            f"{machine['packages']['numpy']} and scikit-learn "
            f"{machine['packages']['scikit-learn']}. {beside}",
            120,
        )
    return ["(no rows)"]


def coverage_sentence(results: dict[str, list[Row]]) -> list[str]:
    """Return which share of the library's lines the tests run."""
    return [
        f"The tests run {row['percent']:g} % of the library's lines, compiled kernels and other "
        "processes aside (`make coverage`)."
        for row in results["coverage"]
    ] or ["(no rows)"]


TABLES: dict[str, Callable[[dict[str, list[Row]]], list[str]]] = {
    "in short": in_short,
    "cost": cost_table,
    "cost in short": partial(cost_table, short=True),
    "peers": peers_table,
    "losses in short": losses_in_short,
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
def evidence(
    root: Annotated[Path, typer.Option(help="A checkout of the repository.")] = Path(),
) -> None:
    """Write the tables of README and docs/evidence from the results that were stored there."""
    for name in PAGES:
        page = root / name
        if page.is_symlink() or not page.is_file():
            raise InputError(f"There is no page {name} here. Run this at the root of a checkout.")
    results = load_results(root)
    pages = {root / name: (root / name).read_text(encoding="utf-8") for name in PAGES}
    written = {page: filled(text, results) for page, text in pages.items()}
    for page, text in written.items():
        if text != pages[page]:  # between our marks; a page without them stays as it is
            write_file_atomically(page, text.encode())
    output_console().print(
        f"Written: {', '.join(PAGES)} ({len(results['fits'])} fits, {len(results['speed'])} "
        "speeds)",
        markup=False,
    )
