"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def fitted(folder: Folder) -> Folder:
    assert folder.fit("--quantile", 0.8).exit_code == 0
    return folder
