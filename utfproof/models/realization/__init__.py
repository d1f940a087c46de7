"""One target's smallest host: the least m of any host that matches this target, and a host of that size.

Here R_Q, R_K, R_V and U may be chosen for the target, so the decision theorem's m >= M does not apply; the least m is read
off the ranks of the target's Hankel matrices (docs/proofs/least-host-of-one-target.md). `hankel` has the ranks, `host` the
host and the exact test that it matches, `proven` a smaller host with a proven error on given inputs.
"""
