"""Prints how many lines and branches of each room the measured run has seen."""

import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

_COUNTED = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def main() -> int:
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for name, found in _measured().items():
        _, _, inside = name.partition("aorta/")
        room = inside.partition("/")[0] if "/" in inside else "(top)"
        for counts in (rooms[room], rooms["all rooms"]):
            counts.update({key: found["summary"].get(key, 0) for key in _COUNTED})
    print(f"{'room':<14} {'lines':>7} {'branches':>9}")
    for room, counts in sorted(rooms.items(), key=lambda row: (row[0] == "all rooms", row[0])):
        lines = _share(counts["covered_lines"], counts["num_statements"])
        branches = _share(counts["covered_branches"], counts["num_branches"])
        print(f"{room:<14} {lines:>7} {branches:>9}")
    return 0


def _measured() -> dict[str, dict[str, dict[str, int]]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        words = (sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(path))
        subprocess.run(words, check=True)
        files: dict[str, dict[str, dict[str, int]]] = json.loads(path.read_text())["files"]
    return files


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


if __name__ == "__main__":
    sys.exit(main())
