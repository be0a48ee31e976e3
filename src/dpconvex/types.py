"""Types that every package uses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "ScalarOrArray"]

Array = NDArray[np.float64]
# scalars in give numpy scalars out, arrays give arrays: the return type follows the input's
ScalarOrArray = Any
