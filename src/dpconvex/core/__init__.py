"""The trusted core: exactly the files that stand between rows and noise in a default fit.

A reviewer who reads this folder has read all that a default fit's certificate rests on, but for how
a cell is read (`inputs/`). In reading order:

- What is promised: `guarantees`, `calibration`, `description`, `stated_names`, `bounds`,
  `linear_bounds`, `mechanism_rules`, `certificate`.
- What is asked: `queries` (kinds of sums, their sensitivities, and the one proof of all),
  `private_rows` (the handle that sums, clips, counts uses and adds noise), `row_coordinates`.
- How rows are summed: `rows`, `memory_rows`, `block_products`, `dense_kernels`, `row_weights`,
  `person_identifiers`, `summation`, `threads`.
- Slopes of losses: `pointwise_losses`, `several_margin_losses`, `tweedie_loss`, `convolution`,
  `smoothing_kernels`.
- Noise: `noise_source`, `normal_and_laplace`.

The core imports nothing of the other rooms. They work on answers that have noise already: they may
be wrong, they cannot break a certificate. ``docs/explanation/trusted-core.md`` has the lemmas.
"""
