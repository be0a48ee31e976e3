r"""Certificates: a privacy claim that anybody can check from what it states.

A certificate states the public facts (:class:`Bounds`), the mechanism and its public parameters, and every release: its
noise and how far one record can move what the noise was added to. :meth:`Certificate.verify` computes these
sensitivities again from the facts, composes the stated noise and asks whether the guarantee follows. It never plans
again, so a certificate stays good when later versions choose other noise. It proves consistency, not origin: it is not
a signature.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any

import numpy as np

from dpconvex.privacy.bounds.base import RECORD, Bounds, bounds_from_dict
from dpconvex.privacy.certificates.concerns import large_delta, unbounded_columns
from dpconvex.privacy.certificates.rules import (
    CertificateError,
    Parameters,
    Promise,
    Proof,
    calibrate,
    check_tails,
    prover_of,
)
from dpconvex.privacy.certificates.terms import NoiseTerm, follows
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import GaussianDP, Guarantee, for_group, guarantee_from_dict
from dpconvex.privacy.noise import EXACT, FAILURE_PROBABILITY, SEEDED

FORMAT = "dpconvex-certificate-2"
# Raised with every change of what a certificate means or of how noise is drawn.
REVISION = 3
# Revisions that under-protect, and why: their certificates are answered "withdrawn".
WITHDRAWN = {
    1: "noise was added in floating point, whose last bits can betray the value, and an objective could depend on its "
    "own noise. Fit again with this version"
}


# Mechanisms whose sums, counts and draws carry votes; others must be read and tested before they join.
_CARRY_VOTES = {
    "gradient", "objective", "output", "sgd", "phased-erm", "phased-sgd",
}  # fmt: skip


def _scalar(value: object) -> object:
    """Return a scalar of numpy's as a plain number, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not plain data.")


@dataclass(frozen=True)
class Certificate(Promise):
    """A privacy claim with everything needed to check it.

    Attributes
    ----------
    guarantee : PureDP, ApproxDP or GaussianDP
        What is promised.
    neighbors : str
        Neighbouring relation the promise is about.
    mechanism, theorem : str
        How it is kept, and why.
    bounds : Bounds
        Public facts.
    noise : dict of str to NoiseTerm
        Every kind of release, with its noise and sensitivity.
    parameters : dict
        The mechanism's public parameters, and assumptions worth stating.
    solver_tolerance : float
        Tolerance that the solver must certify; 0 where nothing is solved.
    sampler : str
        ``"exact"``, ``"floating-point"`` or ``"seeded: not private"``.
    unit : str
        Whom the promise is made to: ``"one record"``, ``"one person"`` whose rows share one vote, or ``"one person, at
        most k rows"``.
    revision : int
        Which rules the certificate was written by.
    digest : str
        Hash of all other fields: notices an edit of a field that no noise depends on.
    """

    guarantee: Guarantee
    neighbors: str
    mechanism: str
    theorem: str
    bounds: Any  # of the kind that check_bounds of its mechanism asks for
    noise: dict[str, NoiseTerm]
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
    ) -> Certificate:
        """Derive a certificate from public facts; the only way one is made."""
        chosen = json.loads(json.dumps(dict(parameters or {}), allow_nan=False, default=_scalar))
        derived = calibrate(mechanism, bounds, guarantee, chosen)
        draft = cls(
            guarantee=guarantee,
            neighbors=bounds.relation,
            mechanism=mechanism,
            theorem="",
            bounds=bounds,
            noise=derived.noise,
            parameters={**chosen, **derived.stated},
            solver_tolerance=derived.solver_tolerance,
            sampler="",
            unit=bounds.unit,
        )
        proof = draft._proof()
        draft = replace(draft, theorem=proof.theorem, sampler=SEEDED if seeded else proof.sampler)
        object.__setattr__(draft, "digest", draft._hash())
        return draft

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the certificate's own facts say against it, in words: a delta above 1/n, columns without bounds.

        Derived from the stated facts, so nobody can take it out of a certificate.
        """
        return tuple(text for text in (unbounded_columns(self), large_delta(self)) if text)

    @property
    def failure_probability(self) -> float | None:
        """How far the drawn noise is from its ideal law at most; None where noise is drawn in floating point.

        ``FAILURE_PROBABILITY`` for each of ``sum problems releases dimension`` numbers. The guarantee holds but for an
        event of this probability; the reserve of calibrations covers what it adds to a delta (see
        :mod:`dpconvex.privacy.noise.gate`).

        Examples
        --------
        >>> from dpconvex import DPLogisticRegression
        >>> DPLogisticRegression(epsilon=1.0, delta=1e-6).certify(1000, 3).failure_probability < 1e-35
        True
        """
        if any(not term.grid for term in self.noise.values()):
            return None
        numbers = sum(term.releases * term.dimension for term in self.noise.values())
        return self.problems * numbers * FAILURE_PROBABILITY

    def for_group(self, size: int) -> Guarantee:
        """Return what is promised to ``size`` records together, by the sharpest bound that the noise proves.

        Releases that are sums plus Gaussian noise move by ``size`` sensitivities: ``size mu`` Gaussian DP. Otherwise
        the generic bound, in which delta grows much faster than epsilon.

        Examples
        --------
        >>> from dpconvex import DPLogisticRegression
        >>> two = DPLogisticRegression(epsilon=1.0, delta=1e-6).certify(1000, 3).for_group(2)
        >>> two.epsilon_bound, f"{two.delta_bound:.2g}"
        (2.0, '3.2e-06')
        """
        return for_group(self.guarantee, self._proof().guarantee, size)

    def _repr_html_(self) -> str:
        """Return what a notebook shows of a certificate."""
        facts = {
            "guarantee": repr(self.guarantee),
            "for": f"{self.unit}, {self.neighbors.replace('_', ' ')}",
            "mechanism": self.mechanism,
            "because": self.theorem,
            "noise": self.sampler,
        }
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(words)}</td></tr>" for name, words in facts.items())
        return f"<table><caption>Privacy certificate</caption>{rows}</table>"

    def gaussian_mu(self) -> float | None:
        """Return the mu of the Gaussian DP that the stated noise proves, whatever the guarantee states, or None."""
        proven = self._proof().guarantee
        return proven.mu if isinstance(proven, GaussianDP) else None

    def _proof(self) -> Proof:
        """Return what the stated noise proves, or raise if it is less than the guarantee."""
        try:
            with np.errstate(all="ignore"):
                proof = prover_of(self.mechanism)(self)
                enough = follows(self.guarantee, proof.guarantee)
        except CertificateError:
            raise
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise CertificateError(f"The public facts do not support the guarantee: {error}") from error
        self._check_void_rows()
        self._check_votes()
        if not enough:
            raise CertificateError(
                f"The certificate's noise does not suffice for {self.guarantee!r}: it proves {proof.guarantee!r}."
            )
        if proof.sampler == EXACT:
            numbers = self.problems * sum(t.releases * t.dimension for t in self.noise.values())
            check_tails(self.guarantee, numbers, self.revision)
        for name, term in self.noise.items():
            if (term.drawn_grid > 0) != (proof.sampler == EXACT):
                raise CertificateError(
                    f"The noise of '{name}' must have a grid where it is drawn exactly, and only there."
                )
        return proof

    def _check_votes(self) -> None:
        """Raise where rows count for less than a whole record, or several change, and no sum is known to carry that."""
        bounds = self.bounds
        special = bounds.unit != RECORD or bounds.weighted_rows
        if special and self.mechanism not in _CARRY_VOTES:
            raise CertificateError(
                f"Mechanism {self.mechanism!r} offers neither groups, rows_per_person nor weights. Use one of "
                f"{sorted(_CARRY_VOTES)}."
            )

    def _check_void_rows(self) -> None:
        """Raise unless the facts count records of weight 0 where, and only where, invalid rows become such records."""
        said = self.parameters.get("invalid_rows")
        # Facts of other kinds state no such records: their constants hold with and without them.
        if said is None or "ignored_rows" not in {each.name for each in fields(self.bounds)}:
            return
        void = self.bounds.ignored_rows
        word = str(said).partition(":")[0]
        if word not in ("error", "ignore") or void != (word == "ignore"):
            raise CertificateError("The certificate's 'invalid_rows' contradicts the 'ignored_rows' of its bounds.")

    @property
    def problems(self) -> int:
        """How often the mechanism ran on the same rows: once, or once per class of more than two."""
        count = self.parameters.get("problems", 1)
        classes = self.parameters.get("n_classes", 2)
        if type(count) is not int or type(classes) is not int or classes < 2:
            raise CertificateError("The certificate's numbers of problems and classes must be integers.")
        if count != (1 if classes == 2 else classes):
            raise CertificateError(f"The certificate's {count} problems are not those of {classes} classes.")
        return count

    def check_bounds(self, *kinds: type, several: bool = False) -> None:
        """Raise unless the mechanism's proof covers these bounds, and several problems where it does not say so."""
        if not isinstance(self.bounds, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise CertificateError(
                f"Mechanism {self.mechanism!r} needs {names}. Got {type(self.bounds).__name__} instead."
            )
        if self.problems > 1 and not several:
            raise CertificateError(f"Mechanism {self.mechanism!r} solves one problem only.")

    def term(
        self, name: str, sensitivity: float, dimension: int, added_to: str, releases: int = 1, tolerance: float = 0.0
    ) -> NoiseTerm:
        """Return a stated release after a check that everything it states is what the facts imply.

        Parameters
        ----------
        name : str
            Which one.
        sensitivity : float
            As computed from the stated facts; the term may state more, never less.
        dimension : int
            Numbers per vector.
        added_to : str
            What the vector is.
        releases : int
            How many there are.
        tolerance : float
            Certified gradient norm that the sensitivity pays for.
        """
        stated = self.noise[name]
        facts = {"dimension": dimension, "added_to": added_to, "releases": releases, "tolerance": tolerance}
        for fact, value in facts.items():
            if stated[fact] != value:
                raise CertificateError(
                    f"The noise of '{name}' states {fact}={stated[fact]!r}, but the mechanism has {value!r}."
                )
        if not stated.sensitivity >= sensitivity * (1 - 1e-9):
            raise CertificateError(
                f"The noise of '{name}' hides a sensitivity of {stated.sensitivity:.6g}, but the public facts imply "
                f"{sensitivity:.6g}."
            )
        return stated

    def check_terms(self, *required: str, optional: tuple[str, ...] = ()) -> None:
        """Raise unless the certificate states these releases and, beyond them, only optional ones."""
        names = set(self.noise)
        if not set(required) <= names or not names <= {*required, *optional}:
            raise CertificateError(
                f"The noise of mechanism {self.mechanism!r} must have the terms {sorted(required)}. "
                f"Got {sorted(names)} instead."
            )

    def check_tolerance(self) -> float:
        """Return the stated tolerance after a check that a solver can certify it in float64."""
        tolerance = self.solver_tolerance
        if not tolerance >= 2.0**-53 * self.bounds.lipschitz:
            raise CertificateError("The certificate's 'solver_tolerance' is smaller than float64 can certify.")
        return tolerance

    def _to_dict(self) -> Facts:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["guarantee"] = self.guarantee.to_dict()
        plain["bounds"] = self.bounds.to_dict()
        plain["noise"] = {name: term.to_dict() for name, term in self.noise.items()}
        return {"format": FORMAT, **plain}

    def _hash(self) -> str:
        content = self._to_dict()
        content.pop("digest")
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        """Return the certificate as JSON; equal public facts give equal text."""
        return json.dumps(self._to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate; call :meth:`verify` before believing it.

        Raises
        ------
        CertificateError
            If the text is not a certificate of this format, or of a withdrawn revision.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:  # among them numbers of too many digits
            raise CertificateError("A certificate must be valid JSON.") from error
        names = {f.name for f in fields(cls)}
        if not isinstance(data, dict) or not isinstance(data.get("format"), str):
            raise CertificateError(f"A certificate must be a JSON object of format {FORMAT!r}.")
        found = data.pop("format")
        if found == "dpconvex-certificate-1":
            raise CertificateError(_withdrawn(1))
        if found != FORMAT:
            raise CertificateError(
                f"Not verified: a certificate must be of format {FORMAT!r}. Got {found!r} instead; a newer version of "
                "dpconvex may read it."
            )
        if set(data) != names:
            wrong = sorted(set(data) ^ names)
            raise CertificateError(f"A certificate must have the fields {sorted(names)}. Check {wrong}.")
        for name in ("noise", "parameters"):
            if not isinstance(data[name], dict):
                raise CertificateError(f"A certificate's {name} must be a JSON object.")
        try:
            data["guarantee"] = guarantee_from_dict(data["guarantee"])
            data["bounds"] = bounds_from_dict(data["bounds"])
            data["noise"] = {name: NoiseTerm(**term) for name, term in data["noise"].items()}
        except (TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise CertificateError(f"A certificate's guarantee, bounds or noise are malformed: {error}") from error
        return cls(**data)

    def verify(self) -> None:
        """Check that the guarantee follows from the stated facts, parameters and noise.

        Every sensitivity is computed again from the public facts; the stated noise is composed by the mechanism's
        theorem; more noise than needed is fine.

        Raises
        ------
        CertificateError
            Naming the first thing that does not hold: noise that does not suffice, fields that contradict each other,
            a revision that was withdrawn, or a newer one that this version cannot judge ("not verified").
        """
        if type(self.revision) is not int or self.revision in WITHDRAWN:
            raise CertificateError(_withdrawn(self.revision))
        if not 1 <= self.revision <= REVISION:
            raise CertificateError(
                f"Not verified: the certificate has revision {self.revision}, and this version knows up to {REVISION}."
            )
        if self.neighbors != self.bounds.relation:
            raise CertificateError("The certificate's 'neighbors' differs from that of its bounds.")
        if self.unit != self.bounds.unit:
            raise CertificateError(f"The certificate's 'unit' must be {self.bounds.unit!r}, as its bounds say.")
        if type(self.solver_tolerance) not in (int, float) or not 0 <= self.solver_tolerance < math.inf:
            raise CertificateError("The certificate's 'solver_tolerance' must be a finite number.")
        proof = self._proof()
        if self.revision == REVISION and self.theorem != proof.theorem:
            raise CertificateError("The certificate's 'theorem' is not that of its mechanism.")
        if self.sampler not in (proof.sampler, SEEDED):
            raise CertificateError("The certificate's 'sampler' is not the one its mechanism uses.")
        try:
            intact = self.digest == self._hash()
        except (TypeError, ValueError) as error:
            raise CertificateError("The certificate holds values that are not plain data.") from error
        if not intact:
            raise CertificateError("The certificate was edited: its digest does not match its fields.")


def _withdrawn(revision: object) -> str:
    reason = WITHDRAWN.get(revision) if isinstance(revision, int) else None
    return f"Withdrawn: certificates of revision {revision!r} do not hold: {reason}."
