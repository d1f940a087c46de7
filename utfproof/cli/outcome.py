"""What a command returns."""

from __future__ import annotations

from utfproof.jobs.job import Outcome

__all__ = ["Outcome"]
