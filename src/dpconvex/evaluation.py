"""Paid scores: the public address of `dpconvex.evaluation`."""

from dpconvex.assessment.evaluation import METRICS, PrivateScore, private_score, private_score_difference

__all__ = ['METRICS', 'PrivateScore', 'private_score', 'private_score_difference']
