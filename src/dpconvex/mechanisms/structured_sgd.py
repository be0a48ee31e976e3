"""Noisy stochastic gradient descent on records that are matrices: the same steps and accounting, another sum."""

from __future__ import annotations

import numpy as np

from dpconvex.engine.blocks import row_margins
from dpconvex.objectives.shared_matrix import SharedNorm
from dpconvex.objectives.structured import StructuredObjective
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.types import Array

__all__ = ["descend_on_batches"]


def descend_on_batches(
    objective: StructuredObjective, certificate: Certificate, generator: np.random.Generator
) -> Array:
    """Return the mean of the later iterates of noisy stochastic descent.

    What all records share is public and added to every step as it is: only the records' own parts are sampled, summed
    and hidden by noise.
    """
    from dpconvex.engine.threads import single_threaded_blas

    settings, term = certificate.parameters["sgd"], certificate.noise["gradients"]
    records, loss, bounds = objective.records, objective.own_loss, certificate.bounds
    size, steps, step = settings["batch_size"], term.releases, settings["step_size"]
    kept = min(steps, max(1, round(settings["average"] * steps)))
    theta, total = np.zeros(objective.dim), np.zeros(objective.dim)
    shared = None if records.shared is None else SharedNorm(records.shared, objective.loss)
    rate = size / bounds.n_samples
    with single_threaded_blas():  # the products are small: threads would wait for each other
        for taken in range(steps):
            if settings["sampling"] == "fixed":
                batch = generator.choice(objective.n_rows, size=size, replace=False, shuffle=False)
            else:
                batch = np.flatnonzero(generator.random(objective.n_rows) < rate)
            matrices = records.scaled(batch)
            level = None if records.level is None else records.level[batch]
            # Row by row: what a record gives must not depend on how many others were drawn.
            margins = row_margins(matrices.reshape(-1, theta.size), theta)
            targets = records.targets[batch]
            slopes = -loss.gradient(targets - margins.reshape(targets.shape), level)
            gradient = np.tensordot(slopes, matrices, axes=2)
            gradient += term.scale * generator.standard_normal(theta.size)
            move = gradient / size + bounds.alpha * theta
            if shared is not None:
                move += shared.gradient(theta)
            theta = theta - step * move
            if taken >= steps - kept:
                total += theta
    return total / kept
