"""`make size`: tracked files, lines by room and words of the docs."""

import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = {".py", ".js", ".css", ".html", ".sh", ".cpp", ".j2"}


def room(path: Path) -> str:
    """The folder that a file is counted in: two levels of `utfproof/`, one of everything else."""
    parts = path.parts
    return "/".join(parts[: 2 if parts[0] == "utfproof" and len(parts) > 2 else 1]) + "/" if len(parts) > 1 else "."


def main() -> None:
    """Print one line per room, then the totals."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]
    lines: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for path in paths:
        if path.suffix in CODE:
            lines[room(path)] += len((ROOT / path).read_text().splitlines())
        elif path.suffix == ".md" and path.parts[0] in ("docs", "README.md"):
            words["proofs" if "proofs" in path.parts else "pages"] += len((ROOT / path).read_text().split())
    for name, count in sorted(lines.items()):
        print(f"{count:7}  {name}")
    print(f"{sum(count for name, count in lines.items() if name.startswith('utfproof/')):7}  lines of utfproof/ in all")
    print(f"{words['pages']:7}  words of README and docs, and {words['proofs']} of proofs")
    print(f"{len(paths):7}  tracked files")


if __name__ == "__main__":
    main()
