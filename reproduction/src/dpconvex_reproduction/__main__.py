"""``python -m dpconvex_reproduction``, the same as ``dpconvex reproduce``."""

import sys

from dpconvex.__main__ import main

sys.argv.insert(1, "reproduce")
main()
