"""Every table and figure that can be reproduced, by name."""

from __future__ import annotations

import importlib

from dpconvex_reproduction.exhibit import Exhibit

__all__ = ["LEFT_OUT", "PAPERS", "TITLES", "cited", "exhibits", "find", "left_out_in_words"]

#: Short name of a paper -> the module whose ``EXHIBITS`` lists its tables and figures in order.
PAPERS = {
    "quantile-sco": "quantile_sco.exhibits",
    "convolution-objective-perturbation": "convolution_objective_perturbation.exhibits",
    "auc-erm": "auc_erm.exhibits",
    "newsvendor-gdp": "newsvendor_gdp.exhibits",
    "output-perturbation": "output_perturbation.exhibits",
    "peers": "peers.exhibits",
}

#: Paper -> its authors and its title.
TITLES = {
    "quantile-sco": (
        "Du Chen and Geoffrey A. Chua",
        "Differentially Private Stochastic Convex Optimization under a Quantile Loss Function",
    ),
    "convolution-objective-perturbation": (
        "anonymous authors",
        "Exploiting Hidden Symmetry to Improve Objective Perturbation for DP Linear Learners "
        "with a Nonsmooth L1-Norm",
    ),
    "auc-erm": (
        "Puyu Wang, Zhenhuan Yang, Yunwen Lei, Yiming Ying and Hai Zhang",
        "Differentially Private Empirical Risk Minimization for AUC Maximization",
    ),
    "newsvendor-gdp": (
        "Tuoyi Zhao, Wen-Xin Zhou and Lan Wang",
        "Private Optimal Inventory Policy Learning for Feature-based Newsvendor with Unknown "
        "Demand",
    ),
    "output-perturbation": (
        "Andrew Lowy and Meisam Razaviyayn",
        "Output Perturbation for Differentially Private Convex Optimization with Improved "
        "Population Loss Bounds, Runtimes and Applications to Private Adversarial Training",
    ),
}

#: Paper -> numbered tables and figures without numbers or curves, which nothing here runs, and what
#: they are instead.
LEFT_OUT = {
    "quantile-sco": {"Table 1": "formulas of kernels", "Table 3": "notation"},
    "convolution-objective-perturbation": {
        "Table 1": "formulas of kernels",
        "Table 2": "formulas of envelopes",
    },
    "auc-erm": {"Table 1": "notation"},
    "newsvendor-gdp": {"Figure 1": "a drawing of the setting"},
}


def cited(paper: str) -> str:
    """Return title and authors of a paper, as Markdown; nothing of peers, which is none.

    Examples
    --------
    >>> cited("auc-erm").partition(", ")[0]
    '*Differentially Private Empirical Risk Minimization for AUC Maximization*'
    """
    authors, title = TITLES.get(paper, ("", ""))
    return f"*{title}*, {authors}." if title else ""


def left_out_in_words() -> str:
    """Return the tables and figures that are not run, paper by paper.

    Examples
    --------
    >>> left_out_in_words().partition("; ")[0]
    'Table 1 (formulas of kernels) and Table 3 (notation) of quantile-sco'
    """
    return "; ".join(
        " and ".join(f"{label} ({what})" for label, what in listed.items()) + f" of {paper}"
        for paper, listed in LEFT_OUT.items()
    )


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
    """Return what a name means: ``"all"``, a paper, or one exhibit such as
    ``"quantile-sco/figure-4"``.

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
        raise ValueError(
            f"{paper} has no '{slug}'. It has: {', '.join(exhibit.slug for exhibit in listed)}."
        )
    return chosen
