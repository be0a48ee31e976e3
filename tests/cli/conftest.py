"""A small table with its bounds, and the command line run in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dpconvex.cli import app

BOUNDS = """\
[features]
temperature = [-20, 40]
price = [0, 10]

[target]
demand = [0, 150]

[categories]
city = ["berlin", "paris"]
"""


def sales_csv(rows: int, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    temperature, price = rng.normal(15, 8, rows), rng.uniform(1, 9, rows)
    city = rng.choice(["berlin", "paris", "rome"], rows)
    demand = 40 + 1.5 * temperature - 3 * price + 10 * (city == "paris") + rng.normal(0, 6, rows)
    lines = ["day,temperature,price,city,demand"]
    lines += [
        f"{day},{t:.2f},{p:.2f},{c},{y:.1f}"
        for day, (t, p, c, y) in enumerate(zip(temperature, price, city, demand, strict=True))
    ]
    return "\n".join(lines) + "\n"


class Folder:
    """A folder with sales.csv and bounds.toml, and the command line run on it."""

    def __init__(self, path: Path, rows: int = 400) -> None:
        self.path = path
        (path / "sales.csv").write_text(sales_csv(rows))
        (path / "bounds.toml").write_text(BOUNDS)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def run(self, *arguments: object):
        """Run; an argument that is the name of a file is taken from the folder."""
        words = [str(word) for word in arguments]
        ends = (".csv", ".toml", ".json", ".parquet", ".db")
        return CliRunner().invoke(
            app, [str(self.path / word) if word.endswith(ends) else word for word in words]
        )

    def fit(self, *more: object):
        return self.run(
            *("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--out", "model.json", *more)
        )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def fitted(folder: Folder) -> Folder:
    assert folder.fit("--quantile", 0.8).exit_code == 0
    return folder
