"""Tests read real data from ``DPCONVEX_DATA``, by default from the folder beside the checkout;
without it they skip.
"""

import os
from pathlib import Path

_BESIDE = Path(__file__).resolve().parent.parent / "shared" / "data"
if _BESIDE.is_dir():
    os.environ.setdefault("DPCONVEX_DATA", str(_BESIDE))
