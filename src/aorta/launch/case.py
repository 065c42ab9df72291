from pathlib import Path

from aorta.launch.decide import LastWords
from aorta.launch.options import Options


def write_case(log_dir: Path, words: LastWords, options: Options) -> Path:
    (log_dir / "case").mkdir(exist_ok=True)
    return log_dir / "case"
