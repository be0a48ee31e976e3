"""Constants of the private fit: value, meaning, and where it comes from.

``python -m benchmarks ablation`` switches each stage off and moves each constant; what a constant or stage brings on
tables that it was not chosen on is in docs/evidence/ablation.md. Numbers of records are ``n mu``, or ``n mu`` per
coefficient where that is said.
"""

# Geometry: coordinates of rows.
COLUMN_OCTAVES = 16  # octaves below 1 that a column's histogram tells apart
OCTAVE_WINDOWS = (2, 4)  # neighbouring octaves of a column that are looked at together
FALSE_ALARM = 1e-4  # probability that noise alone fills a bin of the columns' histograms
HIDDEN_SHARE = 0.002  # of the records: what no budget is asked to see of a column
HIDDEN_THERE = 0.2  # of what noise may hide of a column's variance: what is expected to be there
LENGTH_EDGES = tuple(k / 2 for k in range(-8, 17))  # of log2 lengths, from that of a white row on
LENGTH_PRIOR_SPREAD = 0.5  # octaves around where the columns say that lengths lie
RADIUS_LEVEL = 0.75  # quantile of the lengths that rows are shortened to a multiple of
USUAL_VARIANCE = 0.5  # relative: how far the mean variance of columns may be off what histograms say
LEAST_MOMENT = 0.05  # second moment that gradients are divided by at least
STRETCH_LIMIT = 1e5  # length to which coordinates may stretch a row: sums keep their digits
LONGER_ROWS = 0.08  # share by which rows of very large tables may be taken for longer than they are
MOST_WHITENED = 2000  # columns up to which a matrix of moments is paid for
GEOMETRY_ROWS = (4e4, 2e5)  # rows that geometry is taken of, of however many: at least, at most
GEOMETRY_RECORDS = 400.0  # coefficients over mu for which it is halfway between
EARLY_ROWS = (8e4, 2.0)  # rows of early rounds: at least, and per sqrt(n dimension) / mu
LAST_ROUNDS = 3  # fine rounds on all rows, however many there are

# Budget: shares of mu^2 where records are many; the rounds take the rest.
COUNT_SHARE = 0.01
SHARES = {
    "mass": COUNT_SHARE,
    "columns": 0.03,
    "lengths": 0.015,
    "moments": 0.10,
    "labels": 0.04,
    "octaves": 0.01,
    "targets": 0.04,
    "residuals": 0.05,
    "margins": 0.05,
}
FEW_RECORDS = 80.0  # at which the search for a constant takes a fifth of the budget
UNSURE_RECORDS = 15.0  # per coefficient: below, geometry costs half as much again
ROUGH_SHARE = 0.45  # of the gradients of residuals: those of the median, or with the target's scale
LATE_SHARE, LATE_RECORDS = 0.5, 400.0  # of the gradients: with released curvature; half of it there
LEAST_LATE = 0.01  # share below which late rounds are left out
CURVATURE_SHARE = 0.3  # of the late rounds' budget
INFERENCE_SHARES = (0.78, 0.05)  # of all gradients: late ones with intervals; the scores of records
ROUNDS = {"margin": (0, 16), "quantile": (8, 8), "squares": (3, 4), "smooth": (0, 10)}  # rough, fine
LATE_ROUNDS, CURVATURE_RELEASES = 4, 2

# Limits, in units of a typical row; they open with the records per coefficient.
CLIP, CLIP_RECORDS = {"margin": 0.5, "quantile": 0.5, "squares": 0.7, "smooth": 0.5}, 100.0
MARGIN_CLIP_RECORDS = (10.0, 2000.0)  # between which a margin's clip stays as it is
LATE_CLIP, LATE_CLIP_RECORDS = 1.0, 1000.0
WIDTH, WIDTH_RECORDS = 0.8, 20.0  # of residuals of least squares, in units of their scale
INFERENCE_WIDTH = 4.0  # the same with intervals, at least

# Location of targets, residuals, labels.
TARGET_BINS = 64  # signed octaves of the target
TARGET_COUNTS, RESIDUAL_COUNTS = 12, 10  # noisy counts of a search
RESIDUAL_BINS = 49  # signed octaves of residuals
TAIL_CERTAIN = 5.5  # in units of the noise: an octave of residuals that is not empty (one fit in a million errs)
TAIL_FALL, TAIL_MOST = (0.35, 0.05)  # what the next octave holds, and what the last that is seen counts for
MARGIN_BINS = 16  # of margins, for each label
EDGE_LEVEL = 1e-3  # levels closer to 0 or 1 are out of reach of noisy counts

# Posterior of the minimiser.
SPIKE = 0.1  # prior probability that columns tell nothing
HOPELESS_RECORDS, HOPELESS_EACH = (60.0, 2.0)  # in all, and per coefficient: where that is as likely as not
SIGNAL, PRIOR_SPREAD = 0.5, 1.0  # share of the variance that columns explain; octaves around it
TAIL_WEIGHTS = ((-2, 0.25), (0, 0.5), (2, 0.25))  # octaves around the common scale, and their shares
LAW_OCTAVES = tuple(range(-11, 4))  # standard deviations of coefficients, in octaves of the unit
LATE_SPIKE = 0.9  # prior probability that nothing deviates from what earlier rounds found
LEAD_SHARE = 0.5  # of the squared way of the columns: variance of how far the intercept moves with them
PINNED_RECORDS = 10.0  # per coefficient: from there on clipped gradients tell the intercept
DRIFT, DRIFT_COUNT = (1.0, 2.0)  # of slopes from the median to a level, in scales; weight in coefficients
DOUBT = {"margin": 0.5, "quantile": 0.5, "squares": 0.25, "smooth": 0.7}  # of log curvature
MISMATCH = {"margin": 0.5, "quantile": 0.2, "squares": 0.1, "smooth": 0.3}  # of a step: not quadratic
LATE_MISMATCH = 0.3  # the same of late rounds
CURVATURE_FACTORS = tuple(2.0 ** (k / 2) for k in range(-10, 4))  # of curvature, over the expected one
MOST_MOVE = 2.0  # that one round moves predictions, in units of the scale

# Smoothing, in units of the scale of residuals; of margins in their own.
ROUGH_WIDTH, FINE_WIDTH, INSIDE_WIDTH = 0.4, 0.06, 0.4
HINGE_WIDTH, SHARP_HINGE_WIDTH, HINGE_INSIDE = 0.25, 0.1, 0.3
SKEWED = 0.4  # how far a mean may be from a median, in units of the scale

# Mathematics.
MIDDLE_HEIGHT = 0.3989422804014327  # density of a standard normal law at its middle
NORMAL_SCALE = 4 * MIDDLE_HEIGHT  # of the normal law as dense in its middle as a logistic law of scale 1
NORMAL_MEDIAN = 0.6744897501960817  # median size of a standard normal number
