r"""Certificates: a privacy claim that anybody can recompute from public facts.

A certificate is a function of four things: the mechanism's name, the public facts (:class:`Bounds`), the guarantee
asked for, and the mechanism's own public parameters. Everything else in it (noise, theorem, tolerance, sampler) is
derived, and :meth:`Certificate.verify` derives it again. It proves consistency, not origin: it is not a signature.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from .bounds import Bounds, bounds_from_dict
from .calibration import gaussian_mu
from .guarantees import GaussianDP, Guarantee, guarantee_from_dict

FORMAT = "dpconvex-certificate-1"


class CertificateError(ValueError):
    """A certificate is malformed, or a field of it does not follow from its public facts."""


@dataclass(frozen=True)
class Calibration:
    """What a mechanism derives from public facts.

    Attributes
    ----------
    theorem : str
        The statement that the guarantee rests on.
    noise : dict
        One entry per noise term: distribution, scale, dimension, and whether it is added to the sum or the mean.
    solver_tolerance : float
        Largest norm of the gradient of F at the point the solver returns; 0 where nothing is solved.
    sampler : str
        Which sampler draws the noise when no seed is fixed.
    """

    theorem: str
    noise: dict[str, Any]
    solver_tolerance: float
    sampler: str


Calibrator = Callable[[Any, Guarantee, Mapping[str, Any]], Calibration]
_CALIBRATORS: dict[str, Calibrator] = {}


def calibrates(mechanism: str) -> Callable[[Calibrator], Calibrator]:
    """Register the function that derives noise from public facts for the mechanism of this name."""

    def register(function: Calibrator) -> Calibrator:
        _CALIBRATORS[mechanism] = function
        return function

    return register


def calibrate(
    mechanism: str, bounds: Bounds, guarantee: Guarantee, parameters: Mapping[str, Any]
) -> Calibration:
    """Derive the noise of ``mechanism`` from public facts."""
    import dpconvex.mechanisms  # noqa: F401  (its modules register their calibrations)

    if mechanism not in _CALIBRATORS:
        raise CertificateError(
            f"A certificate's mechanism must be one of {sorted(_CALIBRATORS)}. Got {mechanism!r} instead."
        )
    return _CALIBRATORS[mechanism](bounds, guarantee, parameters)


def _scalar(value: Any) -> Any:
    """Return a scalar of numpy's as a plain number, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not plain data.")


@dataclass(frozen=True)
class Certificate:
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
    noise : dict
        Noise terms and their scales.
    parameters : dict
        The mechanism's public parameters, and assumptions worth stating.
    solver_tolerance : float
        Tolerance that the solver must certify; 0 where nothing is solved.
    sampler : str
        ``"exact"``, ``"floating-point"`` or ``"seeded: not private"``.
    digest : str
        Hash of all other fields: notices an edit of a field that no noise depends on.
    """

    guarantee: Guarantee
    neighbors: str
    mechanism: str
    theorem: str
    bounds: Any
    noise: dict[str, Any]
    parameters: dict[str, Any]
    solver_tolerance: float
    sampler: str
    digest: str = field(default="", repr=False)

    @classmethod
    def issue(
        cls,
        mechanism: str,
        bounds: Bounds,
        guarantee: Guarantee,
        parameters: Mapping[str, Any] | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive a certificate from public facts; the only way one is made."""
        from .noise import SEEDED

        chosen = json.loads(json.dumps(dict(parameters or {}), allow_nan=False, default=_scalar))
        derived = calibrate(mechanism, bounds, guarantee, chosen)
        draft = cls(
            guarantee=guarantee,
            neighbors=bounds.relation,
            mechanism=mechanism,
            theorem=derived.theorem,
            bounds=bounds,
            noise=derived.noise,
            parameters=chosen,
            solver_tolerance=derived.solver_tolerance,
            sampler=SEEDED if seeded else derived.sampler,
        )
        object.__setattr__(draft, "digest", draft._hash())
        return draft

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at which (epsilon, delta)-DP follows."""
        return self.guarantee.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows."""
        return self.guarantee.delta(epsilon)

    def gaussian_mu(self) -> float | None:
        """Return a mu for which the release is mu-Gaussian DP, whatever the guarantee states, or None.

        An (epsilon, delta) that a mechanism keeps by way of a mu gives the noise that the mechanism derives from this
        mu itself: the release is the same, and so is what it promises.
        """
        if isinstance(self.guarantee, GaussianDP):
            return self.guarantee.mu
        epsilon, delta = self.guarantee.epsilon_bound, self.guarantee.delta(math.inf)
        if not (epsilon > 0 and delta > 0):
            return None
        mu = gaussian_mu(epsilon, delta)
        try:
            derived = calibrate(self.mechanism, self.bounds, GaussianDP(mu), self.parameters)
        except ValueError:  # the mechanism offers no Gaussian DP
            return None
        same = (derived.noise, derived.solver_tolerance) == (self.noise, self.solver_tolerance)
        return mu if same else None

    def _to_dict(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["guarantee"] = self.guarantee.to_dict()
        plain["bounds"] = self.bounds.to_dict()
        return {"format": FORMAT, **plain}

    def _hash(self) -> str:
        content = self._to_dict()
        content.pop("digest")
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        """Return the certificate as JSON; equal public facts give equal text."""
        return json.dumps(self._to_dict(), indent=2, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate; call :meth:`verify` before believing it.

        Raises
        ------
        CertificateError
            If the text is not a certificate of this format.
        """
        try:
            data = json.loads(text)
        except (json.JSONDecodeError, RecursionError, UnicodeDecodeError) as error:
            raise CertificateError("A certificate must be valid JSON.") from error
        names = {f.name for f in fields(cls)}
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise CertificateError(f"A certificate must be a JSON object of format {FORMAT!r}.")
        if set(data) != names:
            wrong = sorted(set(data) ^ names)
            raise CertificateError(
                f"A certificate must have the fields {sorted(names)}. Check {wrong}."
            )
        try:
            data["guarantee"] = guarantee_from_dict(data["guarantee"])
            data["bounds"] = bounds_from_dict(data["bounds"])
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CertificateError(
                f"A certificate's guarantee or bounds are malformed: {error}"
            ) from error
        for name in ("noise", "parameters"):
            if not isinstance(data[name], dict):
                raise CertificateError(f"A certificate's {name} must be a JSON object.")
        return cls(**data)

    def verify(self) -> None:
        """Derive the noise and every other dependent field again from the public facts.

        Raises
        ------
        CertificateError
            Naming the first field that does not follow.
        """
        from .noise import SEEDED

        if self.neighbors != self.bounds.relation:
            raise CertificateError("The certificate's 'neighbors' differs from that of its bounds.")
        try:
            derived = calibrate(self.mechanism, self.bounds, self.guarantee, self.parameters)
        except CertificateError:
            raise
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise CertificateError(
                f"The public facts do not support the guarantee: {error}"
            ) from error
        expected = {
            "theorem": derived.theorem,
            "noise": derived.noise,
            "solver_tolerance": derived.solver_tolerance,
        }
        for name, value in expected.items():
            if not _same(getattr(self, name), value):
                raise CertificateError(
                    f"The certificate's '{name}' does not follow from its public facts."
                )
        if self.sampler not in (derived.sampler, SEEDED):
            raise CertificateError("The certificate's 'sampler' is not the one its mechanism uses.")
        try:
            intact = self.digest == self._hash()
        except (TypeError, ValueError) as error:
            raise CertificateError(
                "The certificate holds values that are not plain data."
            ) from error
        if not intact:
            raise CertificateError(
                "The certificate was edited: its digest does not match its fields."
            )


def _same(found: Any, expected: Any) -> bool:
    """Compare derived values: numbers to a relative 1e-9 (another platform's rounding), the rest exactly."""
    if isinstance(expected, dict):
        if not isinstance(found, dict) or set(found) != set(expected):
            return False
        return all(_same(found[key], expected[key]) for key in expected)
    if isinstance(expected, float):
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            return False
        return math.isclose(found, expected, rel_tol=1e-9)
    return type(found) is type(expected) and found == expected
