"""Rules of mechanisms: how noise follows from public facts, what stated noise proves, and what the
proof covers.

A certificate names its mechanism, and nothing else here knows the name of one. Whoever defines a
mechanism registers its rule once; a certificate is proved by the registered rule alone, whatever
else it says. What a rule does not state to carry is refused, so that a forged certificate cannot
claim, for instance, weights for a mechanism whose proof does not cover them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpconvex.core.bounds import Bounds
from dpconvex.core.guarantees import Guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.stated_names import StatedNames

if TYPE_CHECKING:
    from dpconvex.core.certificate import Certificate, CertificateCalibration, CertificateProof

Parameters = Mapping[str, Any]  # a mechanism's public parameters by name: plain data
Calibrator = Callable[[Any, Guarantee, Parameters], "CertificateCalibration"]
Prover = Callable[["Certificate"], "CertificateProof"]


@dataclass(frozen=True)
class Carries:
    """What the proof of a mechanism covers: all else is refused, in fits and in certificates.

    A mechanism states True only where its proof covers the fact and a test shows it.

    Attributes
    ----------
    bounds : tuple of kinds of Bounds
        Kinds of public facts. Records of :class:`LinearBounds` are rows; those of
        :class:`~dpconvex.privacy.StructuredBounds` are matrices.
    weights : bool
        Whether a row may count for less than a whole one.
    people : bool
        Whether the promise may be made to people with several rows.
    ignored_rows : bool
        Whether invalid rows may count nowhere.
    problems : bool
        Whether several problems may be solved on the same rows, such as each class against the
        rest.
    several_margins : bool
        Whether a loss may have several margins, as that of several classes in one fit.
    levels : bool
        Whether one run may find several quantiles, of one target or of one target each.
    """

    bounds: tuple[type[Bounds], ...] = (LinearBounds,)
    weights: bool = False
    people: bool = False
    ignored_rows: bool = False
    problems: bool = False
    several_margins: bool = False
    levels: bool = False


@dataclass(frozen=True)
class MechanismRule:
    """All that certificates know of a mechanism.

    ``calibrate`` derives noise from public facts; ``prove`` says which guarantee stated noise
    gives, and trusts nothing but the certificate; ``owner`` is the class that registered the rule.
    """

    calibrate: Calibrator
    prove: Prover
    carries: Carries = Carries()
    owner: str = ""


_RULES: StatedNames[MechanismRule] = StatedNames()


def register_mechanism_rule(name: str, rule: MechanismRule) -> None:
    """Register the rule behind a mechanism's name; raise if the name is another mechanism's.

    A class that is defined again, as in a notebook, replaces its own rule.
    """
    known = _RULES.registered(name)
    if known is not None and known.owner != rule.owner:
        raise ValueError(
            f"The name {name!r} of {rule.owner} is the name of {known.owner} already, and a "
            "certificate would be proved by the wrong one. Choose another name."
        )
    _RULES.add(name, rule)


def find_mechanism_rule(name: object) -> MechanismRule | None:
    """Return the rule of a mechanism that a certificate names; None if no mechanism has it."""
    return _RULES.find(name)


def known_mechanisms() -> list[str]:
    """Return the names of all mechanisms with a rule, in the order of the alphabet."""
    return _RULES.known()
