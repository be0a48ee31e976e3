"""Sensitivities of what is not one sum over rows of a linear model: pairs, phases, scores, matrices."""
