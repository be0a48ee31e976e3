"""Paid scores of models: the address under which users import them."""

from dpconvex.assessment.evaluation import (
    METRICS,
    PrivateScore,
    private_score,
    private_score_difference,
)

__all__ = ["METRICS", "PrivateScore", "private_score", "private_score_difference"]
