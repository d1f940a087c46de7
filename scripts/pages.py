"""Where pages, schemas and pictures that scripts write end: written, or with --check compared with what is there."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from utfproof.ground.files import write_bytes

ROOT = Path(__file__).resolve().parent.parent


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)])


def settle(pages: Mapping[Path, str], arguments: Sequence[str] | None = None, *, whole: Path | None = None) -> int:
    """Write every page that is not there as given; with --check write none, name each on stderr and return 1.

    whole: a folder of generated files alone, in which any other file is stale too.
    """
    parser = argparse.ArgumentParser(description="Write generated files anew.")
    parser.add_argument(
        "--check", action="store_true", help="write none, name those that are not as generated, leave with 1"
    )
    check = parser.parse_args(arguments).check
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_bytes() != text.encode()]
    more = [path for path in sorted(whole.iterdir()) if path not in pages] if whole and whole.is_dir() else []
    for path in [*stale, *more]:
        if check:
            print(f"{_short(path)} is not what python scripts/{Path(sys.argv[0]).name} writes", file=sys.stderr)
        elif path in pages:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, pages[path].encode())
        else:
            path.unlink()
    return int(check and bool(stale or more))


def _short(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
