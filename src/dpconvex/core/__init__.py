"""The trusted core: all that stands between private rows and released numbers.

In reading order: `row_coordinates` (rows in released coordinates and their norms), `queries` (kinds
of sums, sensitivities and the one proof of all), `private_rows` (the handle that sums, clips,
counts uses and adds noise). Three more primitives stand beside them: `perturbed_minimiser`,
`exponential_choices` (the exponential mechanism) and `auc_pairs` (rankings and their AUC);
`evaluation_certificate` states what a score costs. Everything else works on answers that have noise
already: it may be wrong, it cannot break a certificate. ``docs/explanation/trusted-core.md`` lists
the files and their lemmas.
"""
