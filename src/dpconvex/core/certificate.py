r"""Certificates: privacy claims that anybody can check from what they state.

:meth:`Certificate.verify` computes the sensitivity of every release again from the public facts,
composes the stated noise and asks whether the guarantee follows. It never plans again, so a
certificate stays good when later versions choose other noise. It proves consistency, not origin: it
is not a signature.

Each mechanism registers a rule (:mod:`dpconvex.core.mechanism_rules`): how noise follows from
public facts, which guarantee stated noise gives, and what its proof covers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any

import numpy as np

from dpconvex.core.bounds import RECORD, Bounds, bounds_from_dict
from dpconvex.core.calibration import RESERVED, grid_of
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import (
    ApproxDP,
    GaussianDP,
    Guarantee,
    PureDP,
    group_guarantee,
    guarantee_from_dict,
)
from dpconvex.core.mechanism_rules import (
    Carries,
    MechanismRule,
    Parameters,
    find_mechanism_rule,
    known_mechanisms,
)
from dpconvex.core.noise_source import EXACT, FAILURE_PROBABILITY, SEEDED, TAIL_PROBABILITY
from dpconvex.core.several_margin_losses import SeveralMarginLoss

FORMAT = "dpconvex-certificate-1"
# Raised with every change of what a certificate means or of how noise is drawn.
REVISION = 1
LAWS = ("gaussian", "l2-laplace")
ADDED_TO = ("sum", "mean", "count", "coefficients")
# Beyond this epsilon ratios of probabilities have no meaning any more.
MOST_EPSILON = 150.0
# Profiles are computed to a relative error of 1e-9, on another platform perhaps with other digits.
_SLACK = 1 + 4e-9

# What a certificate states where its records come from a table or a file. Of arrays there is
# nothing to state.
TABLE_RECORDS = (
    "table: a record is a row, or a line of a CSV file; the types of a table's columns are assumed "
    "public"
)


class CertificateError(ValueError):
    """A certificate is malformed, or its guarantee does not follow from what it states."""


def require(holds: object, sentence: str) -> None:
    """Raise a CertificateError unless a condition holds; the sentence says what is wrong
    otherwise.
    """
    if not holds:
        raise CertificateError(sentence)


@contextmanager
def refuse_malformed_certificate(sentence: str) -> Iterator[None]:
    """Turn errors of values that a stranger wrote in a certificate into a CertificateError."""
    try:
        yield
    except CertificateError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise CertificateError(f"{sentence}: {error}") from error


class PrivacyWarning(UserWarning):
    """A fit promises less, or will be less accurate, than it seems; said from public facts
    alone, before the charge.
    """


class LargeDeltaWarning(PrivacyWarning):
    """Delta is above one in the number of records."""


@dataclass(frozen=True)
class CertifiedNoise(Mapping[str, Any]):
    """Noise that was added ``releases`` times to vectors of one kind.

    Reads like a mapping as well; ``term["std"]`` is the scale of a Gaussian term.

    Examples
    --------
    >>> term = CertifiedNoise("gaussian", 4.0, 1.0, dimension=3, added_to="sum", releases=4)
    >>> round(compose_certified_gaussian([term]).mu, 5)
    0.5
    """

    distribution: str  # "gaussian", or "l2-laplace" of density proportional to exp(-||b|| / scale)
    scale: float  # standard deviation per coordinate, or scale of the l2-Laplace distribution
    # largest l2 distance of the vectors of two neighbouring data sets, before rounding to the grid
    sensitivity: float
    dimension: int  # numbers per vector
    added_to: str  # what the vector is, one of ADDED_TO
    releases: int = (
        1  # how many such vectors are released, in each of the problems solved on the same rows
    )
    tolerance: float = (
        0.0  # certified gradient norm of a minimiser that is released; the sensitivity pays for it
    )
    grid: float | None = (
        None  # power of two to whose multiples all is rounded: by default the scale's; 0 for floats
    )
    # kind of a released sum, as dpconvex.core.queries.Query lists them; empty for other releases
    query: str = ""
    # bound on what one record adds to a released sum; of a histogram, its number of columns
    record_bound: float = 0.0

    def __post_init__(self) -> None:
        if self.grid is None:
            object.__setattr__(self, "grid", grid_of(self.scale))
        for name, value in vars(self).items():
            if name in ("distribution", "added_to"):
                options = LAWS if name == "distribution" else ADDED_TO
                allowed = f"one of {list(options)}"
                fine = value in options
            elif name == "query":
                allowed = "a string"
                fine = type(value) is str
            elif name in ("dimension", "releases"):
                allowed = "a positive integer"
                fine = type(value) is int and 1 <= value < 2**53
            else:
                allowed = "a finite number of at least 0"
                fine = type(value) in (int, float) and 0 <= value < math.inf
            if not fine:
                raise ValueError(f"A noise term's {name} must be {allowed}. Got {value!r} instead.")
        for name in ("scale", "sensitivity", "tolerance", "grid", "record_bound"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if not self.scale > 0:
            raise ValueError(f"A noise term's scale must be above 0. Got {self.scale!r} instead.")
        if self.grid and math.frexp(self.grid)[0] != 0.5:
            raise ValueError(
                f"A noise term's grid must be a power of two. Got {self.grid!r} instead."
            )

    def __getitem__(self, name: str) -> Any:
        if name == "std" and self.distribution == "gaussian":
            return self.scale
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))

    @property
    def rounded_sensitivity(self) -> float:
        """``sensitivity + grid sqrt(dimension)``: rounding moves two vectors apart by at most
        that much more.
        """
        return self.sensitivity + self.effective_grid * math.sqrt(self.dimension)

    @property
    def effective_grid(self) -> float:
        """The grid that is paid for: the stated one, but none finer than the gate's; 0 in
        floating point.
        """
        return max(self.grid, grid_of(self.scale)) if self.grid else 0.0

    @property
    def coordinate_std(self) -> float:
        """Root mean square of one coordinate: the std, or ``scale sqrt(dimension + 1)`` of
        l2-Laplace noise.
        """
        return (
            self.scale
            if self.distribution == "gaussian"
            else self.scale * math.sqrt(self.dimension + 1)
        )

    @property
    def norm_upper_bound(self) -> float:
        """Norm exceeded with probability below 1e-17: ``std (sqrt(d) + 9)``, or
        ``scale (2 d + 80)`` of a Gamma(d).
        """
        if self.distribution == "gaussian":
            return self.scale * (math.sqrt(self.dimension) + 9)
        return self.scale * (2 * self.dimension + 80)


def compose_certified_gaussian(terms: Iterable[CertifiedNoise]) -> GaussianDP:
    """Return what Gaussian releases give together:
    ``mu^2 = sum releases (rounded sensitivity / std)^2``.
    """
    terms = list(terms)
    if any(term.distribution != "gaussian" for term in terms):
        raise ValueError("Gaussian DP needs Gaussian noise in every term.")
    return GaussianDP(
        math.sqrt(
            sum(term.releases * (term.rounded_sensitivity / term.scale) ** 2 for term in terms)
        )
    )


def compose_certified_pure(terms: Iterable[CertifiedNoise]) -> PureDP:
    """Return what l2-Laplace releases give together:
    ``epsilon = sum releases rounded sensitivity / scale``.
    """
    terms = list(terms)
    if any(term.distribution != "l2-laplace" for term in terms):
        raise ValueError("Pure epsilon-DP needs l2-Laplace noise in every term.")
    return PureDP(sum(term.releases * term.rounded_sensitivity / term.scale for term in terms))


def certified_guarantee_follows(claim: Guarantee, proven: Guarantee) -> bool:
    """Return whether a certificate's guarantee follows from one that was proven, up to rounding."""
    if isinstance(claim, GaussianDP):
        return isinstance(proven, GaussianDP) and proven.mu <= claim.mu * _SLACK
    if claim.delta_bound == 0 and isinstance(proven, GaussianDP):
        # At a large epsilon the delta of a normal distribution is too small for a number, but it is
        # not 0.
        return proven.mu == 0
    return proven.delta(claim.epsilon_bound * _SLACK) <= claim.delta_bound * _SLACK


@dataclass(frozen=True)
class CertificateCalibration:
    """Noise that a mechanism derives from public facts, by kind of release."""

    noise: dict[str, CertifiedNoise]
    solver_tolerance: float = (
        0.0  # largest norm of the gradient of F at the returned point; 0 where nothing is solved
    )
    stated: Facts = field(
        default_factory=dict
    )  # public choices that the certificate's parameters state besides
    decided: Any = None  # the same choices as the object that a run uses, where there is one


@dataclass(frozen=True)
class CertificateProof:
    """The guarantee that stated releases give together, the theorem, and how the noise must be
    drawn for it.
    """

    guarantee: Guarantee
    theorem: str
    sampler: str = EXACT


def calibrate(
    mechanism: str, bounds: Bounds, guarantee: Guarantee, parameters: Parameters
) -> CertificateCalibration:
    """Derive the noise of ``mechanism`` from public facts."""
    return _mechanism_rule(mechanism).calibrate(bounds, guarantee, parameters)


def _mechanism_rule(mechanism: object) -> MechanismRule:
    """Return the rule of a certificate's mechanism."""
    rule = find_mechanism_rule(mechanism)
    if rule is None:
        raise CertificateError(
            f"A certificate's mechanism must be one of {known_mechanisms()}. Got {mechanism!r} "
            "instead. If it is a mechanism of your own, import the module that defines it first."
        )
    return rule


def plain_parameters(parameters: Parameters | None) -> Facts:
    """Return parameters as the plain data that a certificate states: what JSON can hold."""
    text = json.dumps(dict(parameters or {}), allow_nan=False, default=np.generic.item)
    stated: Facts = json.loads(text)
    return stated


def check_certified_tails(guarantee: Guarantee, numbers: int) -> None:
    """Raise unless a certificate's reserve covers the tails that are never drawn of so many
    Gaussian numbers.

    Beyond an epsilon of 150 nothing covers them: what is drawn then is as close to a distribution
    with the guarantee as the certificate's failure probability says.
    """
    if (
        not isinstance(guarantee, ApproxDP)
        or not guarantee.delta_bound
        or guarantee.epsilon_bound > MOST_EPSILON
    ):
        return
    missing = (1 + math.exp(guarantee.epsilon_bound)) * numbers * TAIL_PROBABILITY
    if missing > RESERVED * guarantee.delta_bound:
        raise CertificateError(
            f"A delta of {guarantee.delta_bound:g} at an epsilon of {guarantee.epsilon_bound:g} "
            "is smaller than what exact noise can promise. Use a larger delta, or ask for pure "
            "epsilon or Gaussian DP."
        )


class CertifiedPromise:
    """A guarantee, read at other budgets: what every certificate offers."""

    guarantee: Guarantee

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at which (epsilon, delta)-DP follows."""
        return self.guarantee.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows."""
        return self.guarantee.delta(epsilon)


@dataclass(frozen=True)
class Certificate(CertifiedPromise):
    """A privacy claim with everything needed to check it.

    Attributes
    ----------
    guarantee, neighbors : PureDP, ApproxDP or GaussianDP, and str
        What is promised, and the neighbouring relation that it is about.
    mechanism, theorem : str
        How it is kept, and why.
    bounds, parameters : Bounds, and dict
        Public facts; the mechanism's public parameters, and assumptions worth stating.
    noise : dict of str to CertifiedNoise
        Every kind of release, with its noise and sensitivity.
    solver_tolerance : float
        Tolerance that the solver must certify; 0 where nothing is solved.
    sampler, unit : str
        ``"exact"``, ``"floating-point"`` or ``"seeded: not private"``; and whom the promise is made
        to: ``"one record"``, ``"one person"`` whose rows have weight 1 together, or
        ``"one person, at most k rows"``.
    revision, digest : int, str
        Version of the rules, and hash of all other fields: notices an edit of one that no noise
        depends on.
    """

    guarantee: Guarantee
    neighbors: str
    mechanism: str
    theorem: str
    bounds: Any  # of a kind that its mechanism carries
    noise: dict[str, CertifiedNoise]
    parameters: Facts
    solver_tolerance: float
    sampler: str
    unit: str = RECORD
    revision: int = REVISION
    digest: str = field(default="", repr=False)

    @classmethod
    def issue(
        cls,
        mechanism: str,
        bounds: Bounds,
        guarantee: Guarantee,
        parameters: Parameters | None = None,
        seeded: bool = False,
        calibration: CertificateCalibration | None = None,
    ) -> Certificate:
        """Derive a certificate from public facts; the only way one is made.

        A calibration that the mechanism has derived from the same facts is not derived again;
        whatever it is, it is proved here.
        """
        chosen = plain_parameters(parameters)
        derived = calibration or calibrate(mechanism, bounds, guarantee, chosen)
        draft = cls(
            guarantee,
            bounds.relation,
            mechanism,
            theorem="",
            bounds=bounds,
            noise=derived.noise,
            sampler="",
            parameters={**chosen, **derived.stated},
            solver_tolerance=derived.solver_tolerance,
            unit=bounds.unit,
        )
        proof = draft._certificate_proof()
        draft = replace(draft, theorem=proof.theorem, sampler=SEEDED if seeded else proof.sampler)
        return replace(draft, digest=draft._hash())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Concerns that follow from the stated facts, so that nobody can take them out of a
        certificate.
        """
        return tuple(text for text in certified_problems(self) if text)

    @property
    def problems(self) -> int:
        """Number of runs that the certificate covers: one, or one per class of more than two,
        unless jointly.
        """
        count = self.parameters.get("problems", 1)
        classes = self.parameters.get("n_classes", 2)
        whole = type(count) is int and type(classes) is int and classes >= 2
        require(whole, "The certificate's numbers of problems and classes must be integers.")
        joint = (
            isinstance(self.bounds.loss, SeveralMarginLoss) and self.bounds.loss.outcomes == classes
        )
        expected = 1 if classes == 2 or joint else classes
        require(
            count == expected,
            f"The certificate's {count} problems are not those of {classes} classes.",
        )
        return int(count)

    @property
    def failure_probability(self) -> float | None:
        """Largest distance of the certified noise from its ideal distribution; None for noise in
        floating point.

        ``FAILURE_PROBABILITY`` for each of ``sum problems releases dimension`` numbers. The
        guarantee holds but for an event of this probability; calibrations reserve what it adds to a
        delta: :mod:`dpconvex.core.noise_source`.
        """
        if any(not term.grid for term in self.noise.values()):
            return None
        numbers = self.problems * sum(
            term.releases * term.dimension for term in self.noise.values()
        )
        return numbers * FAILURE_PROBABILITY

    def for_group(self, size: int) -> Guarantee:
        """Return what the certificate promises to ``size`` records together, by the sharpest bound
        the noise proves.

        Releases that are sums plus Gaussian noise move by ``size`` sensitivities: ``size mu``
        Gaussian DP. Otherwise the generic bound, in which delta grows much faster than epsilon.

        Examples
        --------
        >>> from dpconvex import DPLogisticRegression
        >>> two = DPLogisticRegression(epsilon=1.0, delta=1e-6).certify(1000, 3).for_group(2)
        >>> two.epsilon_bound, f"{two.delta_bound:.2g}"
        (2.0, '3.2e-06')
        """
        return group_guarantee(self.guarantee, self._certificate_proof().guarantee, size)

    def gaussian_mu(self) -> float | None:
        """Return the mu of the Gaussian DP that the stated noise proves, whatever the guarantee
        states, or None.
        """
        proven = self._certificate_proof().guarantee
        return proven.mu if isinstance(proven, GaussianDP) else None

    def verify(self) -> None:
        """Check the certificate: its guarantee must follow from the stated facts, parameters and
        noise.

        Every sensitivity is computed again from the public facts; the stated noise is composed by
        the mechanism's theorem; more noise than needed is fine. A CertificateError names the first
        thing that does not hold.
        """
        known = type(self.revision) is int and self.revision == REVISION
        require(
            known,
            f"Not verified: the certificate has revision {self.revision!r}, and this version "
            f"knows {REVISION}.",
        )
        same = self.neighbors == self.bounds.relation
        require(same, "The certificate's 'neighbors' differs from that of its bounds.")
        unit = self.bounds.unit
        require(self.unit == unit, f"The certificate's 'unit' must be {unit!r}, as its bounds say.")
        finite = (
            type(self.solver_tolerance) in (int, float) and 0 <= self.solver_tolerance < math.inf
        )
        require(finite, "The certificate's 'solver_tolerance' must be a finite number.")
        proof = self._certificate_proof()
        require(
            self.theorem == proof.theorem,
            "The certificate's 'theorem' is not that of its mechanism.",
        )
        allowed = (proof.sampler, SEEDED)
        require(
            self.sampler in allowed,
            "The certificate's 'sampler' is not the one its mechanism uses.",
        )
        with refuse_malformed_certificate("The certificate holds values that are not plain data"):
            intact = self.digest == self._hash()
        require(intact, "The certificate was edited: its digest does not match its fields.")

    def _certificate_proof(self) -> CertificateProof:
        """Return what the certificate's noise proves, or raise if it is less than the guarantee."""
        with (
            refuse_malformed_certificate("The public facts do not support the guarantee"),
            np.errstate(all="ignore"),
        ):
            rule = _mechanism_rule(self.mechanism)
            self._check_carried_problem(rule.carries)
            proof = rule.prove(self)
            enough = certified_guarantee_follows(self.guarantee, proof.guarantee)
        self._check_carried_rows(rule.carries)
        bounds = self.bounds
        stated = self.parameters.get("invalid_rows")
        # Facts of other kinds have no such field: their constants hold with and without ignored
        # rows.
        if stated is not None and "ignored_rows" in {each.name for each in fields(bounds)}:
            choice = str(stated).partition(":")[0]
            agrees = choice in ("error", "ignore") and bounds.ignored_rows == (choice == "ignore")
            require(
                agrees,
                "The certificate's 'invalid_rows' contradicts the 'ignored_rows' of its bounds.",
            )
        require(
            self.parameters.get("records", TABLE_RECORDS) == TABLE_RECORDS,
            "The certificate's 'records' must say what a record is in words of dpconvex.",
        )
        if not enough:
            wanted = self.guarantee
            proven = proof.guarantee
            raise CertificateError(
                f"The certificate's noise does not suffice for {wanted!r}: it proves {proven!r}."
            )
        if proof.sampler == EXACT:
            numbers = self.problems * sum(
                term.releases * term.dimension for term in self.noise.values()
            )
            check_certified_tails(self.guarantee, numbers)
        for name, term in self.noise.items():
            right = bool(term.grid) == (proof.sampler == EXACT)
            require(
                right,
                f"The noise of '{name}' must have a grid where it is drawn exactly, and only "
                "there.",
            )
        return proof

    def _check_carried_problem(self, carries: Carries) -> None:
        """Raise unless the mechanism's proof covers these bounds, margins, levels and problems."""
        names = " or ".join(kind.__name__ for kind in carries.bounds)
        got = type(self.bounds).__name__
        require(
            isinstance(self.bounds, carries.bounds),
            f"Mechanism {self.mechanism!r} needs {names}. Got {got} instead.",
        )
        several_margins = isinstance(self.bounds.loss, SeveralMarginLoss)
        require(
            not several_margins or carries.several_margins,
            f"Mechanism {self.mechanism!r} does not carry losses of several margins.",
        )
        levels = self.parameters.get("quantile")
        several_levels = isinstance(levels, list) and len(levels) > 1
        require(
            not several_levels or carries.levels,
            f"Mechanism {self.mechanism!r} does not carry several quantiles in one fit.",
        )
        require(
            self.problems == 1 or carries.problems,
            f"Mechanism {self.mechanism!r} solves one problem only.",
        )

    def _check_carried_rows(self, carries: Carries) -> None:
        """Raise unless the mechanism's proof covers people, weights and ignored rows, where the
        facts have them.
        """
        bounds = self.bounds
        ignored = str(self.parameters.get("invalid_rows")).partition(":")[0] == "ignore"
        asked = {
            "people": (bounds.unit != RECORD, "groups and rows_per_person"),
            "weights": (bounds.weighted_rows, "weights of rows"),
            "ignored_rows": (bounds.ignored_rows or ignored, "invalid_rows='ignore'"),
        }
        for fact, (needed, words) in asked.items():
            require(
                not needed or getattr(carries, fact),
                f"Mechanism {self.mechanism!r} does not carry {words}. Use another mechanism, or "
                f"state {fact}=True in its 'carries' once its proof and a test cover them.",
            )

    def term(
        self,
        name: str,
        sensitivity: float,
        dimension: int,
        added_to: str,
        releases: int = 1,
        tolerance: float = 0.0,
    ) -> CertifiedNoise:
        """Return the certificate's noise of a release; raise unless it states these facts, or a
        larger sensitivity.
        """
        stated = self.noise[name]
        facts = {
            "dimension": dimension,
            "added_to": added_to,
            "releases": releases,
            "tolerance": tolerance,
        }
        for fact, value in facts.items():
            found = vars(stated)[fact]
            require(
                found == value,
                f"The noise of '{name}' states {fact}={found!r}, but the mechanism has {value!r}.",
            )
        require(
            stated.sensitivity >= sensitivity * (1 - 1e-9),
            f"The noise of '{name}' states a sensitivity of {stated.sensitivity:.6g}, but the "
            f"public facts imply {sensitivity:.6g}.",
        )
        return stated

    def check_terms(self, *required: str, optional: tuple[str, ...] = ()) -> None:
        """Raise unless the certificate states these releases and, beyond them, only optional
        ones.
        """
        names = set(self.noise)
        require(
            set(required) <= names <= {*required, *optional},
            f"The noise of mechanism {self.mechanism!r} must have the terms {sorted(required)}. "
            f"Got {sorted(names)} instead.",
        )

    def check_tolerance(self) -> float:
        """Return the stated tolerance after a check that a solver can certify it in float64."""
        enough = self.solver_tolerance >= 2.0**-53 * self.bounds.lipschitz
        require(enough, "The certificate's 'solver_tolerance' is smaller than float64 can certify.")
        return self.solver_tolerance

    def _certificate_to_dict(self) -> Facts:
        return {
            "format": FORMAT,
            **{item.name: getattr(self, item.name) for item in fields(self)},
            "guarantee": self.guarantee.to_dict(),
            "bounds": self.bounds.to_dict(),
            "noise": {name: dict(vars(term)) for name, term in self.noise.items()},
        }

    def _hash(self) -> str:
        content = self._certificate_to_dict()
        content.pop("digest")
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        """Return the certificate as JSON; equal public facts give equal text."""
        return json.dumps(self._certificate_to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate, or raise CertificateError; call :meth:`verify` before believing
        it.
        """
        with refuse_malformed_certificate("A certificate must be valid JSON"):
            data = json.loads(text)
        stated = isinstance(data, dict) and isinstance(data.get("format"), str)
        require(stated, f"A certificate must be a JSON object of format {FORMAT!r}.")
        found = data.pop("format")
        require(
            found == FORMAT,
            f"Not verified: a certificate must be of format {FORMAT!r}. Got {found!r} instead; a "
            "newer version of dpconvex may read it.",
        )
        names = {item.name for item in fields(cls)}
        wrong = sorted(set(data) ^ names)
        require(not wrong, f"A certificate must have the fields {sorted(names)}. Check {wrong}.")
        for name in ("noise", "parameters"):
            require(isinstance(data[name], dict), f"A certificate's {name} must be a JSON object.")
        with refuse_malformed_certificate(
            "A certificate's guarantee, bounds or noise are malformed"
        ):
            data["guarantee"] = guarantee_from_dict(data["guarantee"])
            data["bounds"] = bounds_from_dict(data["bounds"])
            data["noise"] = {name: CertifiedNoise(**term) for name, term in data["noise"].items()}
        return cls(**data)

    def _repr_html_(self) -> str:
        """Return the table of the certificate that a notebook shows."""
        facts = {
            "guarantee": repr(self.guarantee),
            "for": f"{self.unit}, {self.neighbors.replace('_', ' ')}",
            "mechanism": self.mechanism,
            "because": self.theorem,
            "noise": self.sampler,
        }
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(words)}</td></tr>"
            for name, words in facts.items()
        )
        return f"<table><caption>Privacy certificate</caption>{rows}</table>"


def finds_column_scales(certificate: Certificate) -> bool:
    """Return whether scales of columns without public bounds are found privately."""
    return bool(certificate.parameters.get("fit", {}).get("max_octaves", 0) > 0)


def certified_problems(certificate: Certificate) -> tuple[str | None, str | None]:
    """Return what is wrong with columns without public bounds, and with a delta above ``1 / n``;
    None for nothing.
    """
    guarantee = certificate.guarantee
    rows = certificate.bounds.n_samples
    columns = delta = None
    if certificate.parameters.get("feature_bounds", ()) is None and not finds_column_scales(
        certificate
    ):
        columns = (
            f"Without feature_bounds the mechanism {certificate.mechanism!r} takes every column "
            "to hold numbers from about -1 to 1: one of far larger numbers, such as an income, "
            "makes predictions useless. Give public bounds of the columns."
        )
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound * rows > 1:
        delta = (
            f"The delta of {guarantee.delta_bound:g} is above 1/n = {1 / rows:.2g}: publishing "
            "one record in full, chosen by chance, keeps such a promise. Use a delta far below "
            "1/n."
        )
    return columns, delta
