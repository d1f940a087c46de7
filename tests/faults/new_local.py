"""Faults in the local test."""

from planting import Fault

BOTH = ("new:local-test/seven", "new:local-test/at-M")
FAULTS = [
    Fault(
        "the local test reads the other head's columns",
        "utfproof.decision.local_test",
        "    starts = [group.start + (w * heads + head) * group.width for w in range(group.words // heads)]",
        "    starts = [group.start + (w * heads + heads - 1 - head) * group.width for w in range(group.words // heads)]",
        BOTH,
    ),
    Fault(
        "the local test holds every gauge fixed",
        "utfproof.decision.local_test",
        'changes = (("Q", -(w_q @ unit)), ("K", w_k @ dual @ unit.T @ dual))',
        'changes = (("Q", 0 * (w_q @ unit)), ("K", 0 * w_k @ dual @ unit.T @ dual))',
        ("new:local-test/seven",),
    ),
    Fault(
        "the local test forgets the gauges",
        "utfproof.decision.local_test",
        "    jacobian = np.concatenate(columns, axis=1)",
        "    jacobian = np.concatenate(columns[:1], axis=1)",
        ("new:local-test/seven",),
    ),
]
