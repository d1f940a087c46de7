"""Limits on time and memory are the system's: exit code 3 with the figure, whatever an estimate says."""

import time

import numpy as np
import pytest

from utfproof.errors import ResourceLimit
from utfproof.util.resources import held_memory, limits


def forever():
    while True:
        pass


def test_a_time_limit_ends_a_loop():
    began = time.monotonic()
    with (
        pytest.raises(ResourceLimit, match=r"the loop took more than the limit of 0\.2 s"),
        limits(None, 0.2, "the loop"),
    ):
        forever()
    assert time.monotonic() - began < 5


def nested():
    with limits(None, 60):
        pass
    forever()


def test_an_outer_time_limit_goes_on():
    with pytest.raises(ResourceLimit, match=r"outer took more than the limit of 0\.3 s"), limits(None, 0.3, "outer"):
        nested()


def test_a_memory_limit_refuses_an_array():
    with pytest.raises(ResourceLimit, match="more than the limit of"), limits(held_memory() + 2**26):
        np.ones(2**28)
    np.ones(2**24)


def test_no_limits_do_nothing():
    with limits():
        pass
