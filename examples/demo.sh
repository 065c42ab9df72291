#!/usr/bin/env bash
# The main job on the embedded default: local processes, no services, no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }

say aorta env probe -o -
aorta env probe -o "$results/env.json"
say aorta run --workload half_nan --trials 3
aorta run --workload half_nan --trials 3 --results-dir "$results" || [ $? -eq 1 ]
