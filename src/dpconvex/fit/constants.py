"""Constants of the private fit: value, meaning, evidence.

``[a, b]`` is the evidence: test loss with the constant halved and doubled, over that of the fit as
it is, on tables that it was not chosen on (``python -m benchmarks ablation``,
docs/evidence/ablation.md). Constants without brackets were not moved; "without 1.010" is the loss
without the stage. Records are ``n mu``, or ``n mu`` per coefficient where that is said.
"""

# Geometry: coordinates of rows. Without histograms 1.009, whitening 1.037, denoising 1.015.
COLUMN_OCTAVES = 16  # octaves below 1 that a column's histogram tells apart
OCTAVE_WINDOWS = (2, 4)  # neighbouring octaves of a column that are tested as one
FALSE_POSITIVE_RATE = 1e-4  # probability that noise alone fills a bin of the columns' histograms
UNSEEN_SHARE = 0.002  # least share of a column's values that noise is taken to hide
# least log odds of a column's values being spread like those of all columns, not in one octave
SPREAD_LOG_ODDS = 3.0
UNSEEN_PRIOR_STDS = (
    0.02  # records that a prior of a column which noise hides is worth, in stds of its counts
)
# with intervals: least number of values of a flag that noise hides, in standard deviations of it
UNSEEN_STDS = 0.3
UNSEEN_VARIANCE_SHARE = 0.2  # expected part of the variance that noise may hide
LENGTH_EDGES = tuple(
    k / 2 for k in range(-8, 17)
)  # bins of log2 row norms, in units of that of a white row
LENGTH_PRIOR_STD = 0.5  # octaves around the row norm that columns lead to expect
RADIUS_QUANTILE = 0.75  # quantile of the row norms that rows are clipped to a multiple of
MEAN_VARIANCE_PRIOR_STD = (
    0.5  # relative, of the mean variance of columns that histograms lead to expect
)
MIN_SECOND_MOMENT = 0.05  # least second moment that gradients are divided by
MAX_SCALING = 1e5  # norm to which coordinates may stretch a row: sums keep their digits
NORM_SLACK = 0.08  # share by which norms of rows of very large tables may be overestimated
MAX_WHITENED_COLUMNS = 2000  # columns up to which a matrix of moments is released
GEOMETRY_ROWS = (4e4, 2e5)  # least and largest number of rows that geometry is computed on
GEOMETRY_RECORDS = 400.0  # coefficients over mu at which that number is halfway between
EARLY_ROWS = (8e4, 2.0)  # rows of early rounds: least number, and factor of sqrt(n dimension) / mu
FULL_DATA_ROUNDS = 3  # last fine rounds, which use all rows
EIGENVALUE_NOISE_EDGE = 1.1  # largest eigenvalue of pure noise, over its limit in large matrices
NOISE_REMAINDER = (
    1e-4  # share of removed noise that is left, so that eigenvectors are not arbitrary
)
MIN_CURVATURE_EIGENVALUE = 0.01  # least eigenvalue of a released curvature, over the mean
EIGENVALUE_STDS = (
    1.5  # least eigenvalue that steps with intervals use, in standard deviations of its noise
)
INVERSE_EIGENVALUE_STDS = 1.25  # the same of covariances
SCORE_PRIOR_STD = (
    0.3  # relative, of the mean variance of scores that a histogram of residuals leads to expect
)
RARE_STRETCH = (
    1.5  # with intervals: largest norm of a rare column's values, over that of a white row
)

# Budget: shares of mu^2 where records are many; the rounds take the rest. [1.014, 1.005] geometry
# (columns, lengths, moments), [0.999, 1.002] location (labels, octaves, targets), [1.003, 0.999]
# residuals and margins.
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
    "limits": 6
    * COUNT_SHARE,  # a column that the spread is tied to is covered 91 times of 100 (with 2: 70)
}
SMALL_BUDGET_RECORDS = (
    80.0  # at which the search for a constant takes a fifth of the budget [0.995, 1.010]
)
COARSE_GEOMETRY_RECORDS = (
    15.0  # per coefficient: below, geometry takes half as much again (without 1.010)
)
ROUGH_SHARE = (
    0.45  # share of the gradients that rough rounds take, where there are any [0.999, 1.010]
)
LATE_SHARE = (
    0.5  # share of the gradients that late rounds take where records are many [1.000, 1.001]
)
LATE_RECORDS = 400.0  # per coefficient: where late rounds take a quarter of that [1.000, 1.000]
MIN_LATE_SHARE = 0.01  # share below which late rounds are left out
MIN_HINGE_LATE_SHARE = (
    0.1  # the same for several classes' hinge: earlier rounds, of a softmax, are further from it
)
CURVATURE_SHARE = 0.3  # share of the late rounds' budget that their curvature takes [1.000, 1.000]
INFERENCE_SHARES = {
    "squares": (0.66, 0.10, 0.05)
}  # of all gradients: late rounds, curvature, scores of records
OTHER_INFERENCE_SHARES = 0.55, 0.23, 0.05  # the same of other losses
INFERENCE_MOMENTS = 1.5  # factor of the moments' share with intervals of least squares
ROUNDS = {  # rough, fine [1.005, 1.000]
    "margin": (0, 16),
    "quantile": (8, 8),
    "squares": (3, 4),
    "smooth": (0, 10),
    "several": (0, 16),
    "rate": (4, 12),
}
LATE_ROUNDS = 4
CURVATURE_RELEASES = 2
# the same with intervals; one curvature of squares
INFERENCE_ROUNDS = 8
INFERENCE_CURVATURES = 4
# late rounds of several margins: covtype's log loss at epsilon 100 is 0.638, with 16 it is 0.641
JOINT_ROUNDS = 32
JOINT_RECORDS = 2.0  # records with several margins that are worth one with a single one
# simulated rows of the model of a round; directions that margins see
JOINT_POINTS = 1000
JOINT_DIRECTIONS = 12
JOINT_MIN_EIGENVALUE = (
    0.3  # least eigenvalue of an expected curvature, over the mean: less would shrink all columns
)

# Clips, in units of the median row norm; they grow with the records per coefficient (without that
# 1.004).
CLIP = {  # [1.003, 1.003] margins, [1.000, 1.011] others
    "margin": 0.5,
    "quantile": 0.5,
    "squares": 0.7,
    "smooth": 0.5,
    "several": 0.5,
    "rate": 0.7,
}
CLIP_RECORDS = 100.0  # per coefficient: where the clip starts to grow
MARGIN_CLIP_RECORDS = (10.0, 2000.0)  # per coefficient: between which a margin's clip is constant
# clip of late rounds, and where it starts to grow [1.005, 1.000]
LATE_CLIP = 1.0
LATE_CLIP_RECORDS = 1000.0
RESIDUAL_CLIP = 0.8  # clip of residuals of least squares, in units of their scale [0.999, 1.010]
RESIDUAL_CLIP_RECORDS = 20.0  # per coefficient: where it starts to grow
# with intervals: at 50 records, above which it grows
INFERENCE_RESIDUAL_CLIP = 2.5
INFERENCE_CLIP_RECORDS = 50.0
# clip of rows in matrices of squares, and where it grows
INFERENCE_RADIUS = 1.2
INFERENCE_RADIUS_RECORDS = 400.0
# of noise, by which shares of limited residuals must differ for an allowance for their bias
BIAS_STDS = 1.0
SCORE_CLIP = 2.0  # clip of residuals in scores of least squares, in units of their scale

# Location of targets, residuals and labels.
TARGET_BINS = 64  # signed octaves of the target
RAW_TARGET_OCTAVES = (
    40  # octaves that targets without public bounds may be away from 1, on either side
)
# least power of the deviance in early rounds of rates: of bike rentals by the hour 1.017 at 1
EARLY_POWER = 1.5
RATE_RECORDS = (
    4.0  # records that tell as much of a mean of skewed responses as one tells of a median
)
RATE_CURVATURES = (
    4.0  # largest curvature of a record in units of that at the mean, where records are few
)
RATE_OCTAVES = 30  # octaves below the largest response that are told apart
# noisy counts of a search
TARGET_COUNTS = 12
RESIDUAL_COUNTS = 10
RESIDUAL_BINS = 49  # signed octaves of residuals
LIKELY_STDS = 3.0  # noise stds above which a bin of responses is taken not to be empty
HIDDEN_SHARE = 0.05  # share of slopes which noise hides that may all be those of large responses
CERTAIN_STDS = 5.5  # noise stds above which a bin is not empty, but for one fit in a million
TAIL_DECAY = 0.35  # share of an octave's records that the next one is taken to hold
MAX_TAIL_SHARE = 0.05  # largest share of the last octave seen from which that decay starts
MIN_LEVEL = 1e-3  # quantile levels closer to 0 or 1 cannot be found by noisy counts
GRID_POINTS = 64  # points of the grid of quantiles, which narrows to where they are likely
GRID_TAIL = 0.002  # posterior probability on either side that the next grid may lose
GRID_ERROR = 0.01  # shares that a grid cannot tell apart
SHARE_ERROR = (
    0.3  # relative error of the logistic law's shares, as far as they differ from the level
)
MAX_SHARE_STD = 1e6  # noise beyond which shares of records say nothing
ORIGIN_WIDTH = (
    2.0**-14
)  # distance from 0, over the width of the bounds, below which targets are not told apart
EVEN_PROBABILITY = (
    0.3  # prior probability that bounds around 0 are not too wide, and hold the quantile anywhere
)
BRACKET_DECAY = 4.0  # the prior at the ends of a bracket is 1 / (1 + this) of that in its middle
OUTSIDE_PROBABILITY = 0.05  # prior odds of a quantile beyond its bracket, where that is possible
OUTLIER_LOG_LIKELIHOOD = (
    5.0  # least log likelihood of a count, negated: the law may be wrong far from the quantile
)
REFUTED_LOG_LIKELIHOOD = (
    50.0  # most that a count says, negated, against a quantile on its wrong side
)
CENTRAL_COUNTS = 4  # counts at the posterior median before some are made beside it
OFF_CENTRE_SCALES = 1.1  # scales from the median at which counts tell the scale

# Margins: histogram by label, calibration, curvature.
MARGIN_BINS = 16  # bins of margins, for each label
# in stds of the margin: where bins may be centred, and how far they extend
BIN_CENTRE_LIMIT = 1.5
BIN_RANGE = 3.2
BIN_POINTS = 8  # points of a bin: its middle alone would take a steep slope for a flatter one
MAX_TAIL_RATIO = 0.8  # largest share of a tail that is beyond another bin's width
# prior error of the rounds' slope: absolute, relative
CALIBRATION_STD = 0.1
CALIBRATION_RELATIVE_STD = 0.3
CLIPPED_CURVATURE = 0.3  # curvature of a record whose slope is clipped, over that of others
MIN_MARGIN_CURVATURE = 0.01  # least mean curvature, over the largest one
MIN_ALONG_CURVATURE = 0.1  # least curvature along the margin, over the mean
MAX_CORRELATION = (
    0.9  # largest correlation of intercept and slope: the curvature stays positive definite
)
LOGIT_POINTS = 4000  # points of the grid of label shares
MAX_START_LOGIT = 6.0  # largest logit of the share of positives that rounds start from
INTERCEPT_RECORDS = (
    10.0  # per coefficient: where clipped gradients and label share weigh alike [1.000, 1.000]
)

# Posterior of the minimiser. Without shrinkage 1.094, without that of late rounds 1.139.
SPIKE_PROBABILITY = 0.1  # prior probability that all coefficients are 0
NO_SIGNAL_RECORDS = 60.0  # in all: where that is as likely as not [1.000, 1.000]
NO_SIGNAL_PER_COEFFICIENT = 2.0  # the same per coefficient
EXPLAINED_VARIANCE = 0.5  # expected share of the variance that columns explain [1.000, 1.000]
SCALE_PRIOR_STD = 1.0  # octaves around the scale of coefficients that follows [0.999, 1.002]
TAIL_WEIGHTS = (
    (-2, 0.25),
    (0, 0.5),
    (2, 0.25),
)  # octaves of a coefficient around the common scale, and their shares
SCALE_OCTAVES = tuple(range(-11, 4))  # standard deviations of coefficients, in octaves of the unit
LATE_SPIKE_PROBABILITY = (
    0.9  # prior probability that nothing deviates from what earlier rounds found
)
INTERCEPT_SHIFT_SHARE = (
    0.5  # variance of the intercept's shift, over the squared move of the columns (without 1.011)
)
# of slopes from median to level, in scales; its weight [1.000, 1.000]
LEVEL_SHIFT = 1.0
LEVEL_SHIFT_WEIGHT = 2.0
LOG_CURVATURE_STD = {  # prior [1.000, 1.004]
    "margin": 0.5,
    "quantile": 0.5,
    "squares": 0.25,
    "smooth": 0.7,
    "several": 1.0,
    "rate": 0.5,
}
NONQUADRATIC_ERROR = {  # over the step [0.999, 1.005]
    "margin": 0.5,
    "quantile": 0.2,
    "squares": 0.1,
    "smooth": 0.3,
    "several": 0.3,
    "rate": 0.3,
}
LATE_NONQUADRATIC_ERROR = 0.3  # the same of late rounds
# Relative doubt of what moments tell of the curvature.
CURVATURE_DOUBT = {"squares": 0.1, "margin": 0.5, "quantile": 0.3, "smooth": 0.5, "rate": 0.5}
CURVATURE_FACTORS = tuple(
    2.0 ** (k / 2) for k in range(-10, 4)
)  # possible curvatures, over the expected one
MAX_MOVE = 2.0  # most that one round moves predictions, in units of the scale
UNKNOWN_VARIANCE = 1e300  # variance of a number of which nothing is known
MAX_VARIANCE = 1e100  # of a coefficient whose variance is no number any more
MIN_FLAT_SHARE = 1e-20  # least curvature of a mostly flat loss, over its largest one
MIN_MASS_SHARE = 0.01  # least share of the records that a noisy number of them may state

# Smoothing, in units of the scale of residuals; for margins absolute.
# rough and fine rounds; late curvature [1.001, 1.001]
ROUGH_WIDTH = 0.4
FINE_WIDTH = 0.06
INSIDE_WIDTH = 0.4
# rounds, calibration, late curvature [0.990, 1.016]
HINGE_WIDTH = 0.25
SHARP_HINGE_WIDTH = 0.1
HINGE_INSIDE = 0.3
MEAN_MEDIAN_GAP = 0.4  # expected distance of mean and median, in units of the scale (without 1.002)

# Mathematics.
SLOPE_STD = 0.5  # largest standard deviation of slopes whose range is 1
NORMAL_DENSITY_AT_0 = 0.3989422804014327  # of a standard normal law
NORMAL_SCALE = (
    4 * NORMAL_DENSITY_AT_0
)  # of the normal law as dense at 0 as a logistic law of scale 1
NORMAL_MEDIAN = 0.6744897501960817  # median size of a standard normal number
