"""C++ is compiled where it runs, for the processor at hand: libraries that are kept from run to run, or none without g++."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

_OPTIONS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-w")
_PROCESSOR = Path("/proc/cpuinfo")


def run_compiler(command: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and messages of a compiler, whose own processes and files end with this call, however it ends."""
    compiler = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(folder)},
        start_new_session=True,
    )
    try:
        _, said = compiler.communicate()
    except BaseException:
        os.killpg(compiler.pid, signal.SIGKILL)
        compiler.communicate()
        raise
    return compiler.returncode, said


@cache
def shared_library(source: Path) -> ctypes.CDLL | None:
    """The functions of a C++ file, compiled once for a text and a processor and kept in the user's cache; None where that
    cannot be done: whoever asks has another way."""
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    with suppress(OSError, RuntimeError):  # no home, or one that cannot be written to
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "utfproof"
        kept = home / f"{source.stem}-{_fingerprint(source, compiler)}.so"
        if not kept.exists():
            home.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home) as folder:  # renamed when whole: others may be at it too
                made = Path(folder) / kept.name
                code, _ = run_compiler([compiler, *_OPTIONS, str(source), "-o", str(made)], Path(folder))
                if code:
                    return None
                made.replace(kept)
        return ctypes.CDLL(str(kept))
    return None


def _fingerprint(source: Path, compiler: str) -> str:
    """Of text, options, compiler and processor: what is kept may lie where other machines find it."""
    about = [platform.machine(), compiler, *_OPTIONS]
    with suppress(OSError):
        lines = _PROCESSOR.read_text().splitlines()
        about += sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))})
    return hashlib.sha256("\n".join(about).encode() + source.read_bytes()).hexdigest()[:16]
