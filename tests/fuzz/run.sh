#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD_DIR [SECONDS]: the fuzz target of a build. By default a fixed seed and number of runs, the same inputs every time; with
# SECONDS as long as that, from where the last such run stopped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build_dir=${1:?usage: run.sh BUILD_DIR [SECONDS]}
target=$(find "$build_dir" -type f -name safetensors_fuzz -perm -u+x | head -n 1)
[[ -n $target ]] || { echo "run.sh: no safetensors_fuzz in $build_dir" >&2; exit 1; }
options=(-max_len=2048 -timeout=10 -dict="$here/safetensors.dict" -artifact_prefix="$build_dir/")
if [[ $# -gt 1 ]]; then
  mkdir -p "$build_dir/found"
  exec "$target" "${options[@]}" -max_total_time="$2" -print_final_stats=1 "$build_dir/found" "$here/corpus"
fi
# New inputs go to a folder that starts empty; the kept corpus is only read.
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
"$target" "${options[@]}" -seed=1 -runs=60000 "$found" "$here/corpus"
