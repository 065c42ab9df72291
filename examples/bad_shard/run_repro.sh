#!/usr/bin/env bash
# Reads every shard once. SHARD_DIR, NUM_EPOCHS and the other settings of load.py come from the environment.
set -euo pipefail
exec python3 "$(dirname "$0")/load.py"
