"""``python -m dpconvex_reproduction``, the same as ``dpconvex reproduce``."""

from dpconvex_reproduction.command import main

main()
