"""Numbers printed in the paper's tables; the only ones that do not come from a run."""

from __future__ import annotations

__all__ = ["BUDGETS", "REGRETS", "RESTAURANT_COSTS"]

#: Budgets mu of Tables 1 and 2.
BUDGETS = (0.9, 0.5, 0.3)

#: Table 1 (section 6.1): mean and standard deviation of the regret over 300 repeats at n = 400, by
#: law of the error and budget (None: not private). The service level is not stated.
REGRETS: dict[str, dict[float | None, tuple[float, float]]] = {
    "normal": {None: (0.004, 0.002), 0.9: (0.009, 0.006), 0.5: (0.017, 0.011), 0.3: (0.038, 0.026)},
    "t3": {None: (0.012, 0.003), 0.9: (0.017, 0.006), 0.5: (0.027, 0.012), 0.3: (0.052, 0.034)},
    "mixture": {None: (0.006, 0.003), 0.9: (0.01, 0.005), 0.5: (0.019, 0.011), 0.3: (0.04, 0.026)},
}

#: Table 2 (section 6.2): mean out-of-sample cost over 100 random partitions, by lost-sales penalty
#: b and budget.
RESTAURANT_COSTS: dict[float, dict[float | None, float]] = {
    50.0: {None: 313.08, 0.9: 315.87, 0.5: 316.71, 0.3: 317.49},
    70.0: {None: 365.67, 0.9: 365.75, 0.5: 367.09, 0.3: 369.32},
    90.0: {None: 405.45, 0.9: 405.22, 0.5: 407.47, 0.3: 410.43},
    120.0: {None: 452.45, 0.9: 453.07, 0.5: 456.21, 0.3: 459.89},
}
