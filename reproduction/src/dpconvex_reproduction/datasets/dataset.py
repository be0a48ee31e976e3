"""A data set with its public facts, and the reading of checked files."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARIABLE = "DPCONVEX_DATA"

Folder = str | os.PathLike[str] | None
ColumnBounds = tuple[
    NDArray[np.float64], NDArray[np.float64]
]  # lowest and highest value per column

SHA256 = {
    "a9a.npz": "1dda86a965005de6f5cdf56a50351505710ebdaa8b41db19caff1131e753e6a9",
    "adult.csv.gz": "cfee74f9482f599a0afa30fe70b3ec84f18210dd301dd4c216697315d886cb25",
    "bank_campaign.npz": "2fecff3b0bff101c2884407e086ec73904f61238d85f725d391d543a8644ce3f",
    "bike_hour.csv.gz": "39f296e6d8155422e9834d4466970c726ac32a23364934dc9a4bf4bb0d29e853",
    "census2000_wages.csv.gz": "e324e0b98f4486d84a954403d8fb00e991a210c81bacc0684325e5b506c0aeb6",
    "covtype.npz": "97c4ba740d3631bf87b9dfdc136a6c1c29708a80031f6ccfa3251ab160e9f35f",
    "engel.csv": "1ab6a5c4e884ef9ad624949d2b7e94652eccd75ba3905d1a46c85d28b153ec49",
    "http.npz": "148e0274b06c10c56e58476e6e2711b2451c5e349be77108c20b7c1a8c0f2b47",
    "ijcnn1.npz": "d5804df8858d869957ba553e132e612b08bc0d6051ff81e76799e552fadaf9c8",
    "satimage.npz": "6b575cd790e61ea60a926cec732612c3f46f0bb8064b77114078104e7322e329",
    "skin.npz": "5e1f6f3fcfd25beaf0897e6141b40b30b0bf66c61f79be3b12bb53a698141dc1",
    "yaz_lamb.npz": "a653875dd165b2abfd65fbc168b59a760e5476165aabea295f0a513b1428f0fa",
    "yaz_restaurant.csv": "747711a3d12709cf1764889b70c63a5a0a2be926b2db87f1f78b0040cda0131e",
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features, target and the public facts a private fit needs.

    Attributes
    ----------
    name, description, source, licence : str
        What it is and where it comes from.
    X : array of shape (n_samples, n_features)
        Features.
    y : array of shape (n_samples,)
        Target.
    feature_names : tuple of str
        One name per column of ``X``.
    target_name : str
        What ``y`` is.
    feature_bounds : (array, array)
        Lowest and highest value per column, round numbers that follow from what a column is, not
        from its values.
    target_bounds : (float, float) or None
        Likewise for a regression target.
    X_test, y_test : array or None
        The file's own test part.
    categories : mapping of str to tuple of str
        Public category lists of the columns that are, or may be, encoded as indicators.
    raw : mapping of str to array
        The columns of a text file before encoding.
    """

    name: str
    X: NDArray[np.floating[Any]]
    y: NDArray[Any]
    feature_names: tuple[str, ...]
    target_name: str
    description: str
    source: str
    licence: str
    feature_bounds: ColumnBounds
    target_bounds: tuple[float, float] | None = None
    X_test: NDArray[np.floating[Any]] | None = None
    y_test: NDArray[Any] | None = None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    raw: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, X: {self.X.shape}, target: {self.target_name!r})"


def data_path(filename: str, folder: Folder = None) -> Path:
    """Return the checked path of a data file.

    Parameters
    ----------
    filename : str
        A key of :data:`SHA256`.
    folder : path or None
        Where the files are; None means the folder named by the environment variable
        ``DPCONVEX_DATA``.

    Raises
    ------
    FileNotFoundError
        If the file is not there; the message says where it was looked for.
    ValueError
        If the file is not the one these loaders were written for.
    """
    place = folder if folder is not None else os.environ.get(VARIABLE)
    if not place:
        raise FileNotFoundError(
            f"The data file '{filename}' was not looked for: the environment variable {VARIABLE} "
            f"is not set. Set it to the folder that holds the file, e.g. "
            f"export {VARIABLE}=/path/to/data, or pass folder=."
        )
    path = Path(place) / filename
    if not path.is_file():
        raise FileNotFoundError(
            f"The data file '{filename}' is not in '{place}'. Put it there, or set {VARIABLE} "
            "(or folder=) to the folder that holds it."
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256[filename]:
        raise ValueError(
            f"The data file '{path}' has SHA-256 {digest}, expected {SHA256[filename]}. It is "
            "damaged or another version: fetch it again."
        )
    return path


def read_arrays(filename: str, folder: Folder) -> dict[str, NDArray[Any]]:
    """Read every array of a checked npz file; never unpickles."""
    with np.load(data_path(filename, folder), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def read_columns(filename: str, folder: Folder) -> dict[str, NDArray[Any]]:
    """Read a checked CSV file with a header; columns of numbers become floats, others strings."""
    content = data_path(filename, folder).read_bytes()
    if filename.endswith(".gz"):
        content = gzip.decompress(content)
    header, *rows = csv.reader(io.StringIO(content.decode("utf-8")))
    columns: dict[str, NDArray[Any]] = {}
    for name, values in zip(header, zip(*rows, strict=True), strict=True):
        try:
            columns[name] = np.array(values, dtype=np.float64)
        except ValueError:
            columns[name] = np.array(values)
    return columns


def indicators(values: NDArray[Any], categories: Sequence[Any]) -> NDArray[np.float64]:
    """Return one 0/1 column per public category; any other value gives a row of zeros."""
    return np.asarray(
        np.asarray(values)[:, None] == np.asarray(categories)[None, :], dtype=np.float64
    )


def encode(
    columns: Mapping[str, NDArray[Any]],
    numeric: Mapping[str, tuple[float, float]],
    categories: Mapping[str, Sequence[Any]],
) -> tuple[NDArray[np.float64], tuple[str, ...], ColumnBounds]:
    """Stack numeric columns and the indicators of categorical ones, with names and bounds."""
    blocks = [np.asarray(columns[name], dtype=np.float64)[:, None] for name in numeric]
    names = list(numeric)
    bounds = list(numeric.values())
    for name, values in categories.items():
        blocks.append(indicators(columns[name], values))
        names += [f"{name}={value}" for value in values]
        bounds += [(0.0, 1.0)] * len(values)
    low, high = np.array(bounds, dtype=np.float64).T.copy()
    return np.hstack(blocks), tuple(names), (low, high)


def same_bounds(low: float, high: float, count: int) -> ColumnBounds:
    """Return the same bounds for ``count`` columns."""
    return np.full(count, float(low)), np.full(count, float(high))
