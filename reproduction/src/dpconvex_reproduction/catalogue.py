"""Every table and figure that can be reproduced, by name."""

from __future__ import annotations

import importlib

from dpconvex_reproduction.exhibit import Exhibit

__all__ = ["PAPERS", "exhibits", "find"]

#: Short name of a paper -> the module whose ``EXHIBITS`` lists its tables and figures in order.
PAPERS = {
    "quantile-sco": "quantile_sco.exhibits",
    "convolution-objective-perturbation": "convolution_objective_perturbation.exhibits",
    "auc-erm": "auc_erm.exhibits",
    "newsvendor-gdp": "newsvendor_gdp.exhibits",
    "output-perturbation": "output_perturbation.exhibits",
    "peers": "peers.exhibits",
}


def exhibits(paper: str) -> tuple[Exhibit, ...]:
    """Return the exhibits of one paper.

    Parameters
    ----------
    paper : str
        A key of :data:`PAPERS`.
    """
    module = importlib.import_module(f"dpconvex_reproduction.{PAPERS[paper]}")
    return tuple(module.EXHIBITS)


def find(name: str) -> tuple[Exhibit, ...]:
    """Return what a name means: ``"all"``, a paper, or one exhibit such as ``"quantile-sco/figure-4"``.

    Raises
    ------
    ValueError
        If there is no such thing; the message lists what there is.
    """
    if name == "all":
        return tuple(exhibit for paper in PAPERS for exhibit in exhibits(paper))
    paper, _, slug = name.partition("/")
    if paper not in PAPERS:
        raise ValueError(f"Nothing is named '{name}'. There are: all, {', '.join(PAPERS)}.")
    listed = exhibits(paper)
    if not slug:
        return listed
    chosen = tuple(exhibit for exhibit in listed if exhibit.slug == slug)
    if not chosen:
        raise ValueError(f"{paper} has no '{slug}'. It has: {', '.join(exhibit.slug for exhibit in listed)}.")
    return chosen
