"""One target's smallest host: the least m of any host that matches this target, a host of that size, and how far a smaller
one is off.

Here R_Q, R_K, R_V and U may be chosen for the target, so the decision theorem's m >= M does not apply; the least m is read
off the ranks of the target's Hankel matrices (docs/proofs/least-host-of-one-target.md). `hankel` has the ranks, `host` the
host and the exact test that it matches, `numerical` the same in float64, `simplify` what may be changed in a target without
changing its outputs, `besteffort` the embedding of least squares with a rigorous bound of the output error, `certificate` the
evidence, which the checker of `certificates` verifies, `report` all of it.
"""

from __future__ import annotations
