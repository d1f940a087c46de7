"""One target's smallest host: the least m of any host that matches this target, and a host of that size.

R_Q, R_K, R_V and U are chosen for the target, so m may be less than M (docs/proofs/least-host-of-one-target.md). `hankel` has
the ranks, `host` the host and the exact test that it matches, `proven` a smaller one with a proven error on given inputs.
"""
