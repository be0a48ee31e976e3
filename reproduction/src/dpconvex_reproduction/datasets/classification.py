"""Real data for classification and AUC."""

from __future__ import annotations

import numpy as np

from dpconvex_reproduction.datasets.dataset import (
    Dataset,
    Folder,
    encode,
    read_arrays,
    read_columns,
    same_bounds,
)

_ADULT_NUMERIC = {
    "age": (15, 90),  # recorded up to 90
    "education_num": (1, 16),  # by definition
    "capital_gain": (0, 100_000),  # recorded up to 99999
    "capital_loss": (0, 5000),
    "hours_per_week": (0, 100),  # recorded up to 99
}

# The lists of the published codebook, its spelling included.
_ADULT_WORDS = {
    "workclass": (
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay "
        "Never-worked"
    ),
    "education": (
        "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college Assoc-voc "
        "Assoc-acdm Bachelors Masters Prof-school Doctorate"
    ),
    "marital_status": (
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
        "Married-AF-spouse"
    ),
    "occupation": (
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
        "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
        "Priv-house-serv Protective-serv Armed-Forces"
    ),
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native_country": (
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) "
        "India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica "
        "Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti "
        "Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
        "Trinadad&Tobago Peru Hong Holand-Netherlands"
    ),
}
ADULT_CATEGORIES = {name: tuple(words.split()) for name, words in _ADULT_WORDS.items()}

_COVTYPE_BOUNDS = (
    (1000, 4500),  # elevation in Colorado, metres
    (0, 360),
    (0, 90),
    (0, 2000),
    (-500, 1000),
    (0, 8000),
    (0, 255),
    (0, 255),
    (0, 255),
    (0, 8000),
)

# What the upstream standardisation made of the channel values 0 and 255.
_SKIN_START = (-2.00890104697837, -2.21062196144006, -1.69753963112132)
_SKIN_END = (2.08711254726842, 2.04354732486534, 1.81668848464312)


def load_a9a(*, folder: Folder = None) -> Dataset:
    """Load Adult as LIBSVM's a9a: 123 indicators, y = +1 for income above 50K."""
    arrays = read_arrays("a9a.npz", folder)
    width = arrays["X_train"].shape[1]
    return Dataset(
        name="a9a",
        X=arrays["X_train"].astype(np.float64),
        y=arrays["y_train"].astype(np.int64),
        feature_names=tuple(f"indicator_{k}" for k in range(1, width + 1)),
        target_name="income above 50K",
        description="At most 14 ones per row. The bins of numeric columns were quintiles of the "
        "data: a private claim takes them as public.",
        source="LIBSVM a9a",
        licence="repository BSD-3-Clause; UCI Adult",
        feature_bounds=same_bounds(0, 1, width),
        X_test=arrays["X_test"].astype(np.float64),
        y_test=arrays["y_test"].astype(np.int64),
    )


def load_adult(*, folder: Folder = None) -> Dataset:
    """Load UCI Adult: numeric columns and indicators of public categories, y = 1 above 50K.

    The sampling weight ``fnlwgt`` is left out; it is in ``raw``, with both parts of the file in
    the file's order. A missing category is a block of zeros.
    """
    columns = read_columns("adult.csv.gz", folder)
    X, names, bounds = encode(columns, _ADULT_NUMERIC, ADULT_CATEGORIES)
    y = (columns["income"] == ">50K").astype(np.int64)
    train = columns["split"] == "train"
    return Dataset(
        name="adult",
        X=X[train],
        y=y[train],
        feature_names=names,
        target_name="income above 50K",
        description="Census records of 1994.",
        source="UCI Adult",
        licence="package MIT; UCI Adult",
        feature_bounds=bounds,
        X_test=X[~train],
        y_test=y[~train],
        categories=ADULT_CATEGORIES,
        raw=columns,
    )


def load_ijcnn1(*, folder: Folder = None) -> Dataset:
    """Load ijcnn1: 22 features of an engine's misfire data, y in -1/+1 with a tenth positive."""
    arrays = read_arrays("ijcnn1.npz", folder)
    low, high = same_bounds(-1, 1, 22)
    low[:10] = 0.0  # the first ten are indicators
    return Dataset(
        name="ijcnn1",
        X=arrays["X_train"].astype(np.float64),
        y=arrays["y_train"].astype(np.int64),
        feature_names=tuple(f"feature_{k}" for k in range(1, 23)),
        target_name="misfire",
        description="Upstream transformation of the IJCNN 2001 challenge, taken as public.",
        source="LIBSVM ijcnn1",
        licence="repository BSD-3-Clause; data unstated",
        feature_bounds=(low, high),
        X_test=arrays["X_test"].astype(np.float64),
        y_test=arrays["y_test"].astype(np.int64),
    )


def load_satimage(*, scaled: bool = False, binary: bool = True, folder: Folder = None) -> Dataset:
    """Load Statlog's satellite image: 36 pixel values, labels 1..6.

    Parameters
    ----------
    scaled : bool
        LIBSVM's version, scaled to [-1, 1] by the data's own extremes, without a test part.
    binary : bool
        y = +1 for labels 1..3 and -1 for 4..6, instead of the label.
    folder : path or None
        Where the file is; None means ``DPCONVEX_DATA``.
    """
    arrays = read_arrays("satimage.npz", folder)

    def target(labels: np.ndarray) -> np.ndarray:
        return np.where(labels <= 3, 1, -1) if binary else labels.astype(np.int64)

    X = arrays["X_scale" if scaled else "X_raw_train"].astype(np.float64)
    return Dataset(
        name="satimage",
        X=X,
        y=target(arrays["label_scale" if scaled else "label_raw_train"]),
        feature_names=tuple(f"pixel_{p}_band_{b}" for p in range(1, 10) for b in range(1, 5)),
        target_name="label 1..3" if binary else "label",
        description="Multi-spectral values of 3x3 neighbourhoods, 0..255.",
        source="UCI Statlog (Landsat Satellite)",
        licence="UCI Statlog",
        feature_bounds=same_bounds(-1, 1, 36) if scaled else same_bounds(0, 255, 36),
        X_test=None if scaled else arrays["X_raw_test"].astype(np.float64),
        y_test=None if scaled else target(arrays["label_raw_test"]),
    )


def load_http(*, folder: Folder = None) -> Dataset:
    """Load HTTP connections of KDD Cup 1999: 3 features, y = 1 for the 0.4 % attacks.

    The features are ``log(x + 0.1)`` of the duration in seconds and of the bytes sent and
    received; the bounds allow a day and 65 megabytes.
    """
    arrays = read_arrays("http.npz", folder)
    return Dataset(
        name="http",
        X=arrays["X"],
        y=arrays["y"].astype(np.int64),
        feature_names=("log_duration", "log_src_bytes", "log_dst_bytes"),
        target_name="attack",
        description="A rare class: 2211 of 567498.",
        source="ADBench 16_http",
        licence="BSD-2-Clause (repository)",
        feature_bounds=(np.full(3, -2.5), np.array([12.0, 18.0, 18.0])),
    )


def load_skin(*, folder: Folder = None) -> Dataset:
    """Load UCI skin segmentation: blue, green and red in 0..255, y = 1 for skin.

    The upstream file is standardised; this undoes it, so that the bounds 0 and 255 are public.
    """
    arrays = read_arrays("skin.npz", folder)
    start = np.array(_SKIN_START)
    end = np.array(_SKIN_END)
    return Dataset(
        name="skin",
        X=np.rint((arrays["X"] - start) * (255 / (end - start))),
        y=arrays["y"].astype(np.int64),
        feature_names=("blue", "green", "red"),
        target_name="skin",
        description="Pixels of faces and of other things.",
        source="ADBench 33_skin",
        licence="BSD-2-Clause (repository)",
        feature_bounds=same_bounds(0, 255, 3),
    )


def load_bank_campaign(*, folder: Folder = None) -> Dataset:
    """Load a bank's telephone campaign: 62 columns in [0, 1], y = 1 for a subscription."""
    arrays = read_arrays("bank_campaign.npz", folder)
    width = arrays["X"].shape[1]
    return Dataset(
        name="bank_campaign",
        X=arrays["X"],
        y=arrays["y"].astype(np.int64),
        feature_names=tuple(f"column_{k}" for k in range(1, width + 1)),
        target_name="subscribed",
        description="Indicators and columns scaled upstream by the data's own extremes, taken as "
        "public. Holds the length of the call, known only afterwards.",
        source="ADBench 5_campaign",
        licence="BSD-2-Clause (repository)",
        feature_bounds=same_bounds(0, 1, width),
    )


def load_covtype(*, binary: bool = True, folder: Folder = None) -> Dataset:
    """Load forest cover of 581012 patches: 10 measurements and 44 indicators, in float32.

    Parameters
    ----------
    binary : bool
        y = +1 for cover type 2 and -1 for the others, instead of the type 1..7.
    folder : path or None
        Where the file is; None means ``DPCONVEX_DATA``.
    """
    arrays = read_arrays("covtype.npz", folder)
    count = len(arrays["cover_type"])
    X = np.zeros((count, 54), dtype=np.float32)
    X[:, :10] = arrays["X_num"]
    rows = np.arange(count)
    X[rows, 10 + arrays["wilderness"].astype(np.intp)] = 1
    X[rows, 14 + arrays["soil"].astype(np.intp)] = 1
    low, high = same_bounds(0, 1, 54)
    low[:10], high[:10] = np.array(_COVTYPE_BOUNDS, dtype=np.float64).T
    types = arrays["cover_type"].astype(np.int64)
    return Dataset(
        name="covtype",
        X=X,
        y=np.where(types == 2, 1, -1) if binary else types,
        feature_names=tuple(str(name) for name in arrays["feature_names"]),
        target_name="cover type 2" if binary else "cover type",
        description="Cartographic measurements of 30x30 metre patches in Colorado.",
        source="UCI Covertype",
        licence="package BSD-3-Clause; UCI Covertype",
        feature_bounds=(low, high),
    )
