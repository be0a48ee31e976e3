"""Constants of the private fit: value, meaning, and what an ablation says of it.

``python -m benchmarks ablation`` switches each stage off; its numbers are quoted in docs/evidence/ablation.md.
"""

import os

import numpy as np

# Geometry.
COLUMN_OCTAVES = 16  # octaves below 1 that a column's histogram tells apart
FALSE_ALARM = 1e-4  # probability that noise alone fills a bin of a histogram of columns
OCTAVE_WINDOWS = (2, 4)  # neighbouring octaves of a column that are looked at together
HIDDEN_SHARE = 0.002  # of the records: what no budget is asked to see of a column
LENGTH_EDGES = tuple(np.arange(-4.0, 8.5, 0.5))  # of log2 lengths, from the length of a white row
LENGTH_PRIOR_SPREAD = 0.5  # octaves: where lengths are taken to lie as far as noise hides them
RADIUS_LEVEL = 0.75  # quantile of the lengths that rows are shortened to a multiple of
USUAL_VARIANCE = 0.5  # relative: how far the mean variance of columns may be off what their histograms say
HIDDEN_THERE = 0.2  # of what noise may hide of a column's variance: what is expected to be there
MEDIAN_SHARE = 0.7  # of the mean squared length: the least that the square of a median length says
STRETCH_LIMIT = 1e5  # length to which coordinates may stretch a row: sums keep their digits
LONGER_ROWS = 0.08  # share by which rows of very large tables may be taken for longer than they are
LENGTH_BINS = len(LENGTH_EDGES) + 1
MOST_WHITENED = 2000  # columns up to which a matrix of moments is paid for
GEOMETRY_ROWS = (4e4, 2e5)  # rows that geometry is taken of, of however many: at least, at most
GEOMETRY_RECORDS = 400.0  # coefficients over mu for which it is halfway between
EARLY_ROWS_LEAST, EARLY_ROWS = 8e4, 2.0  # rows of early rounds: at least, and per sqrt(n dimension) / mu

# Budget: shares of mu^2 where records are many; the rounds take the rest.
COUNT_SHARE = 0.01
SHARES = {
    "mass": COUNT_SHARE,
    "columns": 0.03,
    "lengths": 0.015,
    "moments": 0.10,
    "labels": 0.02,
    "octaves": 0.01,
    "targets": 0.04,
    "residuals": 0.05,
    "margins": 0.05,
}
FEW_RECORDS = 80.0  # n mu at which half of a fit is its private constant
UNSURE_RECORDS = 15.0  # records per coefficient below which geometry costs more
LATE_SHARE, LATE_RECORDS = 0.5, 400.0  # of the rounds' budget, with released curvature; halfway point
import os
LEAST_LATE = float(os.environ.get("LL","0.01"))  # share below which late rounds are left out
CURVATURE_SHARE = 0.3  # of the late rounds' budget
CURVATURE_RELEASES, LATE_ROUNDS = int(os.environ.get("CR","2")), int(os.environ.get("LR","4"))
ROUNDS = {"margin": (0, int(os.environ.get("RN","16"))), "quantile": (8, 8), "squares": (3, 4), "smooth": (4, 8)}  # rough, fine
CLIP_SQUARES = 0.7  # of a typical row

# Location.
TARGET_BINS = 64  # signed octaves of the target
TARGET_COUNTS, RESIDUAL_COUNTS = 12, 10  # noisy counts of a search
RESIDUAL_BINS = 49  # signed octaves of residuals
MARGIN_BINS = 16  # of margins, for each label
EDGE_LEVEL = 1e-3  # levels closer to 0 or 1 are out of reach of noisy counts

# Posterior of Newton points.
LAW_OCTAVES = tuple(range(-11, 4))  # standard deviations of a coefficient, in octaves of the unit
SPIKE = float(os.environ.get("SPK","0.1"))  # prior probability that columns tell nothing
SIGNAL, PRIOR_SPREAD = float(os.environ.get("SIG","0.5")), float(os.environ.get("PSP","1.0"))  # share of the variance that columns explain; octaves
LATE_SPIKE = float(os.environ.get("LSP","0.9"))  # prior probability that nothing deviates from what earlier rounds found
TAIL_WEIGHTS = ((-2, 0.25), (0, 0.5), (2, 0.25))  # octaves around the common scale, and their shares
CURVATURE_FACTORS = tuple(2.0 ** (np.arange(-10, 4) / 2))  # of the curvature, over the expected one

# Rounds.
DOUBT = {"margin": float(os.environ.get("DB","0.5")), "quantile": float(os.environ.get("DQ","0.5")), "squares": float(os.environ.get("DS","0.25")), "smooth": 0.7}  # std of the logarithm of a curvature
MOST_MOVE = 2.0  # that one round moves predictions, in units of the scale
ROUGH_WIDTH, FINE_WIDTH = 0.4, 0.06  # bandwidths, in units of the target's scale and of the residuals'
INSIDE_WIDTH = 0.4  # half width of the residuals whose share tells a density, in units of their scale
HINGE_WIDTH = float(os.environ.get("HW","0.25"))  # bandwidth of a hinge, in margins
SKEWED = 0.4  # how far a mean may be from a median, in units of the scale
MIDDLE_HEIGHT = 0.3989422804014327  # density of a standard normal law at its middle
NORMAL_SCALE = 4 * MIDDLE_HEIGHT  # scale of the normal law as dense in its middle as a logistic law of scale 1
MISMATCH = {"margin": float(os.environ.get("MM","0.5")), "quantile": 0.2, "squares": 0.1, "smooth": 0.3}  # of a step: what curvature changes on the way
LATE_CLIP, LATE_CLIP_RECORDS = 1.2, float(os.environ.get("LCR","1000"))  # length of late rounds' rows, in typical ones; records from which it opens
HINGE_INSIDE = 0.3  # half width of the margins whose share tells the curvature of a hinge
LEAD_SHARE = 0.5  # of the squared way of the columns: variance of how far the intercept moves with them
CALIBRATION_WIDTH = 0.1  # bandwidth of a hinge whose margin is calibrated
DRIFT = 1.0  # how far slopes of a level are from those of the median, per distance of the level, in units of the scale
WIDTH, WIDTH_RECORDS = float(os.environ.get("WD","0.8")), float(os.environ.get("WR","20"))  # limit of residuals of least squares, in scales; records from which it opens
DRIFT_COUNT = 2.0  # weight of the expected drift, in coefficients
HOPELESS_RECORDS = float(os.environ.get("HR","60"))  # n mu at which columns are as likely as not to be left out
HOPELESS_EACH = float(os.environ.get("HE","2"))  # the same of records per coefficient
PINNED_RECORDS = 10.0  # records per coefficient from which on clipped gradients are believed about the intercept
