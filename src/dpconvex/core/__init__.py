"""The trusted core: all that stands between private rows and released numbers.

A reviewer who wants to know why a certificate is true reads this room, the gate (:mod:`dpconvex.privacy.noise`), the
composition of a certificate (:mod:`dpconvex.privacy.certificate`) and the sums of the engine. Everything else works
on answers that have noise already: it may be wrong, it cannot break a certificate. ``docs/explanation/trusted-core.md``
lists the files and their lemmas.
"""
