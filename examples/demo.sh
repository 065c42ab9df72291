#!/usr/bin/env bash
# The main job on the embedded default: local processes, no services, no GPU. From a failing run to a bundle directory.
set -euo pipefail
cd "$(dirname "$0")/.."
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }

say aorta env probe
aorta env probe -o "$results/env.json"

say aorta run --workload half_nan --trials 3
aorta run --workload half_nan --trials 3 --results-dir "$results" || [ $? -eq 1 ]

say aorta reduce --spec examples/half_nan/aorta.yaml --output reduce/half-nan --jobs 2
aorta reduce -q --spec examples/half_nan/aorta.yaml --output "$results/reduce/half-nan" --jobs 2
run_dir=$(echo "$results"/reduce/half-nan/*)

say cat shrunken/run_repro.sh
cat "$run_dir/shrunken/run_repro.sh"

say bash shrunken/run_repro.sh
(cd / && bash "$run_dir/shrunken/run_repro.sh") || [ $? -eq 1 ]

say aorta bundle reduce/half-nan/...
aorta bundle "$run_dir" --output "$results/ship"
