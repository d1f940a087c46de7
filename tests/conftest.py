"""Hypothesis profiles: derandomised in CI, no deadline (shared machines are slow now and then). The command line as a
fixture."""

import os

import pytest
from hypothesis import HealthCheck, settings

from utfproof.cli.app import run

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    """Run a command in a fresh folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return call
