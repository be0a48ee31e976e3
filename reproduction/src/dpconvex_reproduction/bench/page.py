"""The page of the benchmark: what our models lose first, then ties and wins, figures, and every
guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from dpconvex_reproduction.bench.problems import TASKS
from dpconvex_reproduction.drawing import (
    MARKERS,
    OTHERS,
    OURS,
    WIDEST,
    LineEnd,
    label_lines,
    label_room,
    panels,
    readable_axis,
    save_figure,
)
from dpconvex_reproduction.exhibit import Row, select, summarise
from dpconvex_reproduction.fingerprint import made_with
from dpconvex_reproduction.outputs import write_output
from dpconvex_reproduction.pages import markdown_table

__all__ = ["Contest", "best_settings", "contests", "page_files", "spoken", "write_page"]

_SETTING = ("data", "task", "relation", "epsilon")
#: In figures methods of one kind are one line, the better of them: at most seven lines can be told
#: apart.
_MERGED = {
    "DP-SGD": ("Opacus DP-SGD", "jax-privacy DP-SGD", "noisy gradient descent"),
    "AdaSSP": ("AdaSSP", "boosted AdaSSP"),
}
#: Style, marker and its face of our methods.
_OUR_LOOKS = {"dpconvex": ("-", "o", OURS), "dpconvex, splines": ((0, (5, 1)), "s", "white")}
_FIGURES = (
    "One panel for each data set, with the fit without privacy as a dotted level. Of DP-SGD in "
    "two packages and with full batches, and of AdaSSP with and without boosting, the best one "
    "is drawn. A panel shows the best four fifths of all means that are better than the best "
    "constant, so that a method that fails does not flatten the others, and all of our default."
)
_DRAWN = "Bars: two standard errors over seeds. Arrows: the line ends above or below the panel."
_NAMES = {
    "log_loss": "log loss",
    "auc": "AUC",
    "accuracy": "accuracy",
    "r2": "R²",
    "pinball": "pinball loss",
}


_HOW = (
    "A loss or a win is a difference of means beyond Student's 97.5 % limit for its standard "
    "error over seeds (Welch); closer is a tie, and of two equal methods one in forty would be "
    "called a loss by chance. Seeds move noise and batches alone: the split is one. Peers with "
    "several settings are shown in the best one, chosen on the test rows with hindsight and not "
    "charged; ours have one setting. All methods of a comparison hold the same neighbours: ours "
    "are run under the relation that the peer states."
)


@dataclass(frozen=True)
class Contest:
    """One of our models against one peer, on one metric of one setting.

    Attributes
    ----------
    setting : tuple
        Data, task, relation and epsilon.
    metric : str
        What is compared.
    ours, peer : str
        Names of the methods.
    mine, theirs : float
        Means over seeds; the peer's in its best setting, chosen with hindsight.
    ahead, error : float
        By how much ours is better, and the standard error of that difference over seeds.
    limit : float
        Standard errors beyond which a difference counts: Student's 97.5 % point with Welch's
        degrees of freedom.
    """

    setting: tuple[Any, ...]
    metric: str
    ours: str
    peer: str
    mine: float
    theirs: float
    ahead: float
    error: float
    limit: float = 2.0

    @property
    def verdict(self) -> str:
        """``"loss"``, ``"tie"`` or ``"win"``: beyond the limit or not; ``"one seed"`` without a
        standard error.
        """
        if not math.isfinite(self.error):
            return "one seed"
        if abs(self.ahead) <= self.limit * self.error:
            return "tie"
        return "win" if self.ahead > 0 else "loss"

    def line(self) -> Row:
        """Return the contest as a row of a table."""
        data, task, relation, epsilon = self.setting
        return {
            "data": data,
            "task": task,
            "epsilon": epsilon,
            "metric": _NAMES[self.metric],
            "ours": self.ours,
            "ours is": self.mine,
            "peer": self.peer,
            "peer is": self.theirs,
            "ahead by": self.ahead,
            "standard error": self.error,
            "neighbours": spoken(relation),
        }


def spoken(relation: str) -> str:
    """Return neighbours as words."""
    return {"add_or_remove_one": "one row more or less", "replace_one": "one row replaced"}.get(
        relation, relation
    )


def _kind(task: str) -> str:
    return task.partition(" ")[0]


def best_settings(rows: Sequence[Row], metric: str, larger: bool) -> list[Row]:
    """Return mean and standard error of every method in its best setting, chosen with hindsight, by
    problem and budget.

    Examples
    --------
    >>> fit = {"data": "a", "task": "linear", "relation": "r", "epsilon": 1.0, "method": "m"}
    >>> rows = [
    ...     {**fit, "setting": s, "r2": value}
    ...     for s, value in (("x", 0.1), ("x", 0.3), ("y", 0.5), ("y", 0.7))
    ... ]
    >>> [(line["setting"], round(line["r2"], 3)) for line in best_settings(rows, "r2", True)]
    [('y', 0.6)]
    """
    keys = (*_SETTING, "method")
    found: dict[tuple[Any, ...], Row] = {}
    usable = [row for row in rows if row.get(metric) is not None]
    for line in summarise(usable, [*keys, "setting"], metric):
        key = tuple(line[name] for name in keys)
        if not math.isfinite(line[metric]):
            continue
        if key not in found or (line[metric] > found[key][metric]) == larger:
            found[key] = line
    return list(found.values())


def contests(rows: Sequence[Row]) -> list[Contest]:
    """Return every contest of one of our models and a peer with the same rows, budget and
    neighbours.
    """
    ours = {row["method"] for row in rows if row["ours"]}
    found = []
    for task in dict.fromkeys(row["task"] for row in rows):
        for metric, larger in TASKS[_kind(task)].items():
            lines = best_settings(
                select([row for row in rows if row["relation"]], task=task), metric, larger
            )
            sign = 1.0 if larger else -1.0
            for mine in [line for line in lines if line["method"] in ours]:
                setting = tuple(mine[name] for name in _SETTING)
                for theirs in lines:
                    if (
                        theirs["method"] in ours
                        or tuple(theirs[name] for name in _SETTING) != setting
                    ):
                        continue
                    ahead = sign * (mine[metric] - theirs[metric])
                    error, limit = _welch(mine, theirs)
                    pair = (mine["method"], theirs["method"], mine[metric], theirs[metric])
                    found.append(Contest(setting, metric, *pair, ahead, error, limit))
    return found


def _welch(mine: Row, theirs: Row) -> tuple[float, float]:
    """Return the standard error of a difference of means, and how many of them count as a
    difference.
    """
    parts = [(line["error"] ** 2, line["repeats"] - 1) for line in (mine, theirs)]
    total = sum(square for square, _ in parts)
    if not (math.isfinite(total) and total > 0):
        return math.sqrt(total) if math.isfinite(total) else math.nan, 2.0
    freedom = total**2 / sum(square**2 / count for square, count in parts)
    return math.sqrt(total), float(student.ppf(0.975, freedom))


def _counts(held: Sequence[Contest]) -> list[Row]:
    """Return losses, ties and wins of each pair."""
    table = []
    for ours, peer in dict.fromkeys((contest.ours, contest.peer) for contest in held):
        verdicts = [
            contest.verdict for contest in held if (contest.ours, contest.peer) == (ours, peer)
        ]
        counted = {f"{name}": verdicts.count(word) for name, word in _WORDS.items()}
        table.append({"ours": ours, "peer": peer, **counted})
    return table


_WORDS = {"losses": "loss", "ties": "tie", "wins": "win", "one seed": "one seed"}


def _order(contest: Contest) -> float:
    return contest.ahead / contest.error if contest.error else contest.ahead


def write_page(
    rows: Sequence[Row], folder: Path, failures: Sequence[str] = (), left_out: Sequence[str] = ()
) -> Path:
    """Write ``index.md`` and its figures.

    Parameters
    ----------
    rows : sequence of dict
        Fits.
    folder : Path
        Where the page goes.
    failures, left_out : sequence of str
        Cells that failed, and what was not asked for, to be said.
    """
    held = contests(rows)
    lost = sorted([c for c in held if c.verdict == "loss"], key=_order)
    tied = sorted([c for c in held if c.verdict == "tie"], key=_order)
    repeats: dict[str, int] = {}
    for row in rows:
        if row["relation"]:
            repeats[row["method"]] = max(repeats.get(row["method"], 0), row["seed"] + 1)
    fewest = min(repeats.values(), default=1)
    most_seeds = max(repeats.values(), default=1)
    seeds = f"{fewest}" if fewest == most_seeds else f"{fewest} to {most_seeds}"
    limits = [row["most_rows"] for row in rows if row.get("most_rows") is not None]
    some = f" A try: at most {max(limits):,} training rows." if limits else ""
    lines = [
        "# Benchmark: private methods on the same rows, bounds, budget and neighbours",
        "",
        made_with(sorted({row.get("made") or "an unknown commit" for row in rows})),
        "",
        f"{len(rows):,} fits, {seeds} seed{'s' * (most_seeds > 1)} of each, delta "
        f"{rows[0].get('delta') or 1e-6:g}. {_HOW}{some}",
        "",
        "## Losses, ties and wins",
        "",
        *markdown_table(_counts(held)),
        "",
        f"## What we lose ({len(lost)} of {len(held)})",
        "",
        *(markdown_table([c.line() for c in lost]) if lost else ["Nothing in this run."]),
        "",
        f"## Ties ({len(tied)})",
        "",
        *(markdown_table([c.line() for c in tied]) if tied else ["None."]),
        "",
    ]
    for number, (name, words) in enumerate(_figures(rows, folder)):
        lines += (["## Figures", "", _FIGURES, ""] if number == 0 else []) + [
            f"![{words}]({name})",
            "",
        ]
    lines += [
        "## All means",
        "",
        *_means(rows),
        "",
        "## What each promises",
        "",
        *_promises(rows),
        "",
    ]
    if left_out or failures:
        lines += [
            "## Not here",
            "",
            *[f"- {words}" for words in (*left_out, *dict.fromkeys(failures))],
            "",
        ]
    page = folder / "index.md"
    text = "\n".join(lines).rstrip() + "\n"
    # Messages of methods may hold halves of signs.
    write_output(page, text.encode("utf-8", "backslashreplace"))
    return page


def page_files(problems: Iterable[tuple[str, str]], folder: Path) -> list[Path]:
    """Return the files that :func:`write_page` may write.

    Parameters
    ----------
    problems : iterable of pairs
        Tasks and relations of the fits.
    folder : Path
        Where the page goes.
    """
    names = [
        _figure_name(task, relation, metric)
        for task, relation in dict.fromkeys(problems)
        for metric in TASKS[_kind(task)]
    ]
    return [folder / name for name in ("index.md", *names)]


def _figure_name(task: str, relation: str, metric: str) -> str:
    return f"{task}-{relation}-{metric}.png".replace(" ", "-").replace("_", "-")


def _means(rows: Sequence[Row]) -> list[str]:
    shown: list[str] = []
    for task in dict.fromkeys(row["task"] for row in rows):
        here = select(rows, task=task)
        merged: dict[tuple[Any, ...], Row] = {}
        for metric, larger in TASKS[_kind(task)].items():
            for line in best_settings(here, metric, larger):
                key = tuple(line[name] for name in (*_SETTING, "method"))
                words = f"{line[metric]:.4f}" + (
                    f" ± {line['error']:.4f}" if math.isfinite(line["error"]) else ""
                )
                merged.setdefault(key, {"data": key[0], "epsilon": key[3], "method": key[4]})[
                    _NAMES[metric]
                ] = words
                merged[key]["seeds"] = line["repeats"]
                merged[key]["neighbours"] = spoken(key[2]) or "not private"
                merged[key].setdefault("best setting", line["setting"])
        shown += [f"### {task}", "", *markdown_table(list(merged.values())), ""]
    return shown[:-1]


def _promises(rows: Sequence[Row]) -> list[str]:
    found: dict[str, Row] = {}
    for row in rows:
        words = (
            row["guarantee"].replace(row["relation"], spoken(row["relation"]))
            if row["relation"]
            else "none"
        )
        found.setdefault(row["method"], {"method": row["method"], "for example": words})
        found[row["method"]]["settings, chosen with hindsight"] = (
            row["settings"] if row["settings"] > 1 else ""
        )
    return markdown_table(list(found.values()))


def _figures(rows: Sequence[Row], folder: Path) -> list[tuple[str, str]]:
    """Draw a figure for each task, relation and metric; return names and descriptions."""
    made = []
    private = [row for row in rows if row["relation"]]
    colors = _colors(private)
    for task, relation in dict.fromkeys((row["task"], row["relation"]) for row in private):
        for metric, larger in TASKS[_kind(task)].items():
            here = select(private, task=task, relation=relation)
            lines = best_settings(here, metric, larger)
            level: dict[
                str, tuple[float, float]
            ] = {}  # of methods without privacy: the best, and the constant
            for line in best_settings(select(rows, task=task, relation=""), metric, larger):
                best, worst = level.get(line["data"], (line[metric], line[metric]))
                ordered = sorted((line[metric], best, worst), reverse=larger)
                level[line["data"]] = ordered[0], ordered[-1]
            if len({line["epsilon"] for line in lines}) < 2 or all(row["ours"] for row in here):
                continue
            name = _figure_name(task, relation, metric)
            save_figure(
                folder / name, _draw, _merged(lines, metric, larger), level, metric, larger, colors
            )
            made.append((name, f"{_NAMES[metric]} against epsilon, {task}, {spoken(relation)}"))
    return made


def _merged(lines: Sequence[Row], metric: str, larger: bool) -> list[Row]:
    """Return lines with those of one kind merged into the better of them."""
    kept = [line for line in lines if line["method"] not in _KINDS]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for line in lines:
        if line["method"] in _KINDS:
            groups.setdefault(
                (_KINDS[line["method"]], *(line[name] for name in _SETTING)), []
            ).append(line)
    for (kind, *_), pair in groups.items():
        best = max(pair, key=lambda line: line[metric] if larger else -line[metric])
        kept.append(best if len(pair) == 1 else {**best, "method": f"{kind}, best of {len(pair)}"})
    return kept


_KINDS = {name: kind for kind, names in _MERGED.items() for name in names}


def _colors(rows: Sequence[Row]) -> dict[str, int]:
    """Return the number of each peer's colour and marker: the same in all figures, and no two
    alike in one of them.
    """
    found: dict[str, int] = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        names = dict.fromkeys(
            str(row["method"]) for row in rows if row["task"] == task and not row["ours"]
        )
        peers = list(dict.fromkeys(_KINDS.get(name, name) for name in names))
        for name in peers:
            taken = {found[other] for other in peers if other in found}
            free = [number for number in range(len(peers) + len(found)) if number not in taken]
            found.setdefault(name, free[0])
    return found


def _draw(
    figure: Any,
    lines: Sequence[Row],
    level: dict[str, tuple[float, float]],
    metric: str,
    larger: bool,
    colors: dict[str, int],
) -> None:
    sets = list(dict.fromkeys(line["data"] for line in lines))
    methods = list(dict.fromkeys(line["method"] for line in lines))
    axes = panels(figure, min(2, len(sets)), -(-len(sets) // 2), height=3.4)
    for ax in axes.flat[len(sets) :]:
        ax.set_visible(False)
    found: list[list[LineEnd]] = []
    for ax, data in zip(axes.flat, sets, strict=False):
        here = select(lines, data=data)
        _limits(ax, here, level.get(data), metric, larger)
        readable_axis(ax, sorted({row["epsilon"] for row in here}), "epsilon")
        ends = []
        for number, name in enumerate(methods):
            line = sorted(select(here, method=name), key=lambda row: row["epsilon"])
            if line:
                shift = 1.025 ** (number - (len(methods) - 1) / 2)  # bars stand side by side
                # A name is no formula, which matplotlib would read between two dollar signs.
                shown = name.replace("$", r"\$")
                drawn = _line(ax, line, metric, colors, shift)
                ends.append(LineEnd(line[-1][metric], shown, drawn))
        if data in level:
            drawn = ax.axhline(level[data][0], color="black", linewidth=0.8, linestyle=(0, (1, 2)))
            ends.append(LineEnd(level[data][0], "not private", drawn))
        ax.set_title(data)
        ax.set_ylabel(_NAMES[metric] + (", larger is better" if larger else ", smaller is better"))
        found.append(ends)
    room = label_room([end.name for ends in found for end in ends])
    columns = axes.shape[1]
    figure.set_size_inches(WIDEST, figure.get_size_inches()[1])
    width, height = figure.get_size_inches()
    figure.tight_layout(rect=(0, 0.2 / height, (width - room) / width, 1))
    # Every panel has its own names, and room for them.
    left = axes[0, 0].get_position().x0 * width
    between = room + 0.7
    panel = (width - left - room - (columns - 1) * between) / columns
    figure.subplots_adjust(right=1 - room / width, wspace=between / panel)
    figure.text(0.008, 0.04 / height, _DRAWN, fontsize=8, color="0.3", va="bottom")
    for ax, ends in zip(axes.flat, found, strict=False):
        label_lines(ax, ends)


def _line(ax: Any, line: Sequence[Row], metric: str, colors: dict[str, int], shift: float) -> Any:
    """Draw one method with bars of two standard errors where its mean is in the panel; return
    the line.
    """
    name = line[0]["method"]
    ours = name.startswith("dpconvex")
    number = colors.get(_KINDS.get(name, name.partition(", best of")[0]), 0)
    color = OURS if ours else OTHERS[number % len(OTHERS)]
    style, marker, face = _OUR_LOOKS.get(name, (":", "D", "white"))
    if not ours:
        style = "-"
        marker = MARKERS[number % len(MARKERS)]
        face = color
    low, high = ax.get_ylim()
    x = [row["epsilon"] * shift for row in line]
    # A line to a point far away would cross the panel upright.
    far = 2 * (high - low)
    y = [row[metric] if low - far <= row[metric] <= high + far else math.nan for row in line]
    # A bar of a mean that is out of sight would cross the panel and belong to nothing.
    errors = [
        2 * row["error"] if math.isfinite(row["error"]) and low <= row[metric] <= high else 0.0
        for row in line
    ]
    return ax.errorbar(
        x,
        y,
        errors,
        linestyle=style,
        color=color,
        marker=marker,
        markersize=5 if ours else 4,
        markerfacecolor=face,
        linewidth=2.4 if ours else 1.2,
        elinewidth=1.0,
    )[0]


def _limits(
    ax: Any, lines: Sequence[Row], level: tuple[float, float] | None, metric: str, larger: bool
) -> None:
    """Show means that are better than the constant, of those the best four fifths, and all means
    of our default.
    """
    sign = 1.0 if larger else -1.0
    values = sorted((row[metric] for row in lines), key=lambda value: -sign * value)
    if level is not None and level[0] != level[1]:
        useful = [value for value in values if sign * (value - level[1]) > 0]
        values = useful or values
    kept = values[: len(values) - len(values) // 5] + ([level[0]] if level is not None else [])
    kept += [row[metric] for row in lines if row["method"] == "dpconvex"]
    low = min(kept)
    high = max(kept)
    margin = 0.05 * (high - low) or 0.01
    ax.set_ylim(low - margin, high + margin)
