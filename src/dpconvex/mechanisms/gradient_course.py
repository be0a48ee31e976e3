"""The public choices of a noisy descent, which its certificate states."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from dpconvex.checks import check_number


@dataclass(frozen=True)
class Course:
    """The public choices of a run, which its certificate states.

    Attributes
    ----------
    private : bool
        Whether coordinates are released; otherwise the rows' own influence bound gives them.
    records : float
        ``n mu / dimension``: records per coefficient that noise leaves; of several levels, for one of them.
    looked_at : int or None
        How many rows geometry is taken of, where that is not all of them.
    stepped_on : int or None
        How many rows give the gradients of steps that are not averaged, where that is not all of them.
    clip : float
        Bound on a weighted row, or on a gradient of slope 1, in units of a typical row.
    floor : float
        Eigenvalues are raised to this multiple of the noise's spectral norm.
    trust : float
        Exponent of the second whitening, between 0 and 1; at 0 there is none.
    few : float
        How much of the run is a private constant: near 1 where ``n mu`` is far below 80, near 0 far above.
    reach : float
        Rows are shortened to this multiple of a usual length before moments are taken: rare flags need more of it.
    ranking : bool
        Whether only the order of margins matters, so that neither their size nor an intercept is paid for.
    diagonal : bool
        Whether coordinates only stretch columns, which are too many for a matrix of moments.
    early : int
        Steps of the final descent that come before those which are averaged, with noise of their own.
    above : int
        Octaves above 1 that columns may reach: more than 0 where no bounds of columns are public.
    centred : bool
        Whether columns are centred before all else, as they are wherever no bounds are public.
    raw_target : bool
        Whether no bounds of the target are public, so that its unit must be found.
    levels : tuple of float
        Levels of several quantiles that one run finds; empty for a single one, whose level is the loss's.
    targets : int
        Of how many targets: 1, or as many as there are levels.
    """

    private: bool
    records: float
    looked_at: int | None = None
    stepped_on: int | None = None
    clip: float = 1.0
    floor: float = 0.5
    trust: float = 1.0
    few: float = 0.0
    reach: float = 1.1
    ranking: bool = False
    diagonal: bool = False
    early: int = 0
    above: int = 0
    raw_target: bool = False
    levels: tuple[float, ...] = ()
    targets: int = 1
    centred: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        if any(type(level) is not float or not 0 < level < 1 for level in self.levels):
            raise ValueError("A course's levels must be numbers between 0 and 1.")
        if type(self.targets) is not int or self.targets not in (1, len(self.levels)):
            raise ValueError("A course has one target, or one for each of its levels.")
        for name in ("private", "ranking", "diagonal", "raw_target", "centred"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"A course's '{name}' must be True or False.")
        for rows in (self.looked_at, self.stepped_on):
            if rows is not None and (type(rows) is not int or rows < 1):
                raise ValueError("A number of rows must be None or a positive integer.")
        if any(type(number) is not int or number < 0 for number in (self.early, self.above)):
            raise ValueError(
                "A number of early steps or of octaves must be an integer of at least 0."
            )
        for name in ("few", "trust"):
            check_number(name, "Course", getattr(self, name), "a number of at least 0", 0, math.inf)
        for name in ("records", "clip", "floor", "reach"):
            value, allowed = getattr(self, name), "a finite number above 0"
            check_number(name, "Course", value, allowed, 0, math.inf, low_open=True)

    @property
    def fits(self) -> int:
        """How many final descents there are."""
        return max(1, len(self.levels))

    @property
    def rounds(self) -> int:
        """How often moments are released: twice where a second look at them is trusted at all."""
        return 0 if self.diagonal else 1 + (self.trust > 0)

    @property
    def off_middle(self) -> float:
        """Root mean square of ``level - 1/2``: what a constant part of the gradients is worth."""
        return math.sqrt(sum((level - 0.5) ** 2 for level in self.levels) / self.fits)

    def stated(self) -> dict[str, object]:
        """Return the course as a certificate states it: of several levels only where there are some."""
        facts = asdict(self) | {"levels": list(self.levels)}
        if not self.levels:
            del facts["levels"], facts["targets"]
        return facts
