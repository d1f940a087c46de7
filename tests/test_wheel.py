"""The wheel, built and used in a fresh environment. Without extras CI runs it as a stage of its own; with each extra here."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "smoke_wheel.sh"


@pytest.mark.exhaustive
@pytest.mark.parametrize("extras", ["", "plots", "torch", "cluster", "search", "plots,torch,cluster,search"])
def test_the_installed_wheel_works(extras):
    done = subprocess.run(["bash", SCRIPT, extras], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the wheel works" in done.stdout


def test_the_script_is_a_stage_of_ci():
    assert "stage wheel make wheel" in (ROOT / ".ci" / "run").read_text()
    assert "scripts/smoke_wheel.sh" in (ROOT / "Makefile").read_text()
    assert subprocess.run([shutil.which("bash") or "bash", "-n", SCRIPT], check=False).returncode == 0
