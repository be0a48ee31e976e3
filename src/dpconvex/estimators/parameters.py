"""Constructor parameters that estimators share, written and documented once.

Estimators are dataclasses whose fields are their parameters: scikit-learn reads them from the signature that Python
derives, type checkers know them, and what a class does not document itself is taken from here.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast, dataclass_transform

__all__ = ["estimator"]

Kind = TypeVar("Kind")

_SHARED = {
    "epsilon": """
epsilon, delta : float, optional
    Privacy budget: the smaller, the more private and the noisier; 1.0 and 1e-6 by default. Delta is the probability
    that the promise fails; ``delta=0`` asks for pure epsilon-DP.""",
    "mu": """
mu : float, optional
    Privacy budget of Gaussian DP, in place of epsilon and delta, with a mechanism that offers it.""",
    "neighbors": """
neighbors : {"replace_one", "add_or_remove_one"}
    What is hidden: what any one record says (the number of records is public), or also that it is there.""",
    "nominal_samples": """
nominal_samples : int, optional
    Public guess of the number of records; required with ``add_or_remove_one``, where the true number is private.""",
    "feature_bounds": """
feature_bounds : pair (low, high) or dict of str to (low, high), optional
    Public bounds of the columns, scalars or one value per column; values beyond are clipped. A dictionary names all
    columns of a dataframe, which may have them in any order. Columns whose bounds contain 0 are divided by
    ``max(|low|, |high|)``, others are centred to [-1, 1]. Without them the mechanism
    ``"gradient"`` finds the columns' sizes privately, and others take them to hold numbers from about -1 to 1.""",
    "row_norm": """
row_norm : float, optional
    Length up to which a row counts in full, after its columns were mapped; ``sqrt(n_features)`` by default (1 without
    feature bounds). A longer row counts with the smaller weight ``row_norm / length``.""",
    "fit_intercept": """
fit_intercept : bool, default=True
    Whether to fit a (penalised) intercept.""",
    "rows_per_person": """
rows_per_person : int, default=1
    A public promise that nobody has more rows: what is guaranteed is guaranteed to a person with all of them. With
    ``groups`` and ``person_weight="rows"`` the number of rows of a person that are used, at most.""",
    "person_weight": """
person_weight : {"equal", "rows"}
    Weight of people whose rows share an identifier in ``groups``: "equal" gives every person a weight of 1, shared by
    all rows; "rows" gives a weight of 1 to each of at most ``rows_per_person`` rows.""",
    "target_bounds": """
target_bounds : pair (low, high), optional
    Public range of the target; sets the scale, clips nothing. Without it the mechanism ``"gradient"`` finds the scale
    privately; for others targets should be of order 1.""",
    "bandwidth": """
bandwidth : float, optional
    Smoothing bandwidth, in the target's units; by default the one with the smallest predicted risk, from public
    facts.""",
    "alpha": """
alpha : float, optional
    Penalty; by default the one with the smallest predicted risk, from public facts.""",
    "coef_bound": """
coef_bound : float, optional
    Bound on the norm of the mapped coefficients, enforced by a projection of the released ones.""",
    "kernel": """
kernel : str or Kernel, default="logistic"
    Smoothing kernel: logistic, gaussian, uniform, epanechnikov, laplacian, exponential, or an object such as a
    :class:`~dpconvex.smoothing.MixtureKernel` of one's own.""",
    "smoothing": """
smoothing : {"convolution", "moreau"}, default="convolution"
    How kinks are rounded: averaged with the kernel, from above, or by a Moreau envelope of the same curvature, from
    below. The latter is for comparison; ``mechanism="gradient"`` takes the former alone.""",
    "classes": """
classes : sequence, optional
    The labels that may occur. By default they are read from y and become public; the certificate says which. In
    whatever order they are given, ``classes_`` is sorted; of two, the last is the positive one.""",
    "class_weight": """
class_weight : dict, optional
    Public weights of labels, 1 where left out; divided by the largest one if that is above 1.""",
    "inference": """
inference : bool, default=False
    Whether to pay for what :meth:`confidence_interval` needs, about a quarter of the budget. Nothing is then shrunk or
    calibrated, and data too few for intervals are refused before anything is charged.""",
    "mechanism": """
mechanism : str or Mechanism, default="auto"
    How noise is added: "objective", "output", "gradient", "sgd", "phased-erm", "phased-sgd" or a mechanism object;
    "auto" takes "gradient", or for pure epsilon the one of the first two with the smallest predicted risk.""",
    "invalid_rows": """
invalid_rows : {"error", "ignore"}
    What becomes of a record with NaN, infinity or a label that is not in ``classes``. "error" refuses the data, which
    is visible and not covered by the guarantee; "ignore", for which classifiers need ``classes``, counts it nowhere.
    Descents and least squares then pay for the number of valid records, ``released_["mass"]``; perturbed minimisers,
    phases and SGD divide by the public number n of all records: ``alpha`` weighs ``n / n_valid`` times as much.""",
    "sampler": """
sampler : {"auto", "exact"}
    Where noise is drawn: by dpconvex, exactly on a public grid, or "exact" by opendp, on the same grid and about
    20 microseconds a number.""",
    "ledger": """
ledger : Ledger, optional
    Budget of the data set; charged before noise is drawn.""",
    "random_state": """
random_state : int, Generator or RandomState, optional
    Fixes the noise, for tests: such a fit is not private, and its certificate says so.""",
    "verbose": """
verbose : int, default=0
    Print progress that depends on public facts only.""",
}

_ATTRIBUTES = {
    "coef_": """
coef_ : array of shape (n_features,)
    Coefficients in the user's units. Several levels or products, and classifiers, have a row for each problem.""",
    "intercept_": """
intercept_ : float or array
    Intercepts in the user's units, one for each row of ``coef_``.""",
    "classes_": """
classes_ : array
    The label set, sorted.""",
    "certificate_": """
certificate_ : Certificate
    What is guaranteed, and why.""",
    "released_": """
released_ : dict
    Further quantities that were released on the way.""",
}


@dataclass_transform(eq_default=False)
def estimator(kind: type[Kind]) -> type[Kind]:
    """Make a class an estimator whose fields are its parameters; documents those, and attributes, that it shares."""
    kind = dataclass(eq=False, repr=False)(kind)
    if not kind.__name__.startswith("DP"):
        return kind
    text = inspect.cleandoc(kind.__doc__ or "")
    head, first, rest = re.split(r"\n(?=(Attributes|Notes|Examples)\n---)", f"{text}\n\n", maxsplit=1)
    own = _documented_names(head[head.index("Parameters\n---") :]) | {"delta"}
    shared = "".join(_SHARED[name] for name in inspect.signature(kind).parameters if name not in own)
    released = "Attributes\n----------"
    if first == "Attributes":
        released, rest = rest.split("\n\n", 1)
    named = {each.name for each in fields(cast(Any, kind))} - _documented_names(released)
    released += "".join(words for name, words in _ATTRIBUTES.items() if name in named)
    kind.__doc__ = f"{head.rstrip()}{shared}\n\n{released}\n\n{rest.rstrip()}\n"
    return kind


def _documented_names(section: str) -> set[str]:
    """Return the names that a section of a docstring describes."""
    heads = re.findall(r"^(\w[\w, ]*)(?: :|$)", section, re.M)
    return set(re.findall(r"\w+", " ".join(heads)))
