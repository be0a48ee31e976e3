"""Sensitivities of what is no sum over rows: pairs, phases, scores, matrices, tilted losses."""
