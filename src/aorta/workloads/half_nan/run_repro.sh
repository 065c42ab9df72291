#!/usr/bin/env bash
# One training run. NUM_STEPS, BATCH_SIZE, SHAPES_FILE and the other settings of train.py come from the environment.
set -euo pipefail
exec python3 "$(dirname "$0")/train.py"
