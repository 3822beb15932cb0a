#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The sweeps that are too long for every change, in an environment made by `scripts/setup.sh dev`.
#
#   scripts/nightly.sh [STEP ...]     all steps, or those named; `scripts/nightly.sh --list` names them
#
# Every step runs, whatever the others come to; each prints one closing line, and the exit code is 1 if any failed.
# Random graphs take 2,000 cases a property, the fuzzers 10,000 cases each, from seeds that the date sets.
#
#   MEMC_NIGHTLY_CASES    cases of each fuzzer (10000)
#   MEMC_NIGHTLY_MUTANTS  faults in the sources that the tests are tried against (200)
#   MEMC_NIGHTLY_FIRST    the first seed (ten thousand times the days since 1970: each night has its own)
#   MEMC_NIGHTLY_JOBS     processes at a time (2)
#   MEMC_NIGHTLY_LIMIT    seconds after which a fuzzer's process counts as hung (21600)
#   MEMC_NIGHTLY_SWEEP    further options of benchmarks/compile_sweep.py, such as '--batch 1 7 --target llvm sm_90': there are
#                         7,650 cells of the repository's own models, 16,860 with the exports and the trained ones
#   MEMC_NIGHTLY_PYTHONS  interpreters of the step `pythons` (python3.10 to python3.14, those that are there)
#   MEMC_NIGHTLY_OUT      folder for logs, rows and failing cases (build/nightly)
#   MEMC_NIGHTLY_MODELS   folder of training/*.onnx and inference/*.onnx, exports without weights; without it, the sweep has
#                         the repository's own models and those of the cache
#   MEMC_NIGHTLY_CACHE    folder of trained models (scripts/fetch_models.py), also for seeded weights (OUT/cache)
set -uo pipefail
cd "$(dirname "$0")/.."
venv=${MEMC_VENV:-.venv}
export PATH="$(cd "$venv" && pwd)/bin:$PATH" OMP_NUM_THREADS=1
jobs=${MEMC_NIGHTLY_JOBS:-2}
cases=${MEMC_NIGHTLY_CASES:-10000}
first=${MEMC_NIGHTLY_FIRST:-$(($(date +%s) / 86400 * 10000))}
out=${MEMC_NIGHTLY_OUT:-build/nightly}
cache=${MEMC_NIGHTLY_CACHE:-$out/cache}
limit=${MEMC_NIGHTLY_LIMIT:-21600}
mkdir -p "$out" "$cache"

properties() { MEMC_HYPOTHESIS_PROFILE=nightly python -m pytest tests/property tests/unit/ir/ops/gradients -n "$jobs"; }
slow() { python -m pytest -m slow tests -n "$jobs"; }
nodes() { python benchmarks/onnx_backend.py --mode compiled --workers "$jobs"; }
# What every change has to pass, in each supported Python that is there: each has an environment of its own.
pythons() {
  local python version tried=() failed=0
  for python in ${MEMC_NIGHTLY_PYTHONS:-python3.10 python3.11 python3.12 python3.13 python3.14}; do
    if ! version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); then
      echo "$python: is not there"
      continue
    fi
    tried+=("$version")
    MEMC_VENV="$out/python-$version" PYTHON="$python" scripts/test.sh || { echo "Python $version: FAILED"; failed=1; }
  done
  echo "Pythons tried: ${tried[*]:-none}"
  [ ${#tried[@]} -gt 0 ] && return $failed
}
sanitizers() { scripts/cpp_tests.sh --sanitize && scripts/cpp_tests.sh --threads; }
fuzz_onnx() { fuzz onnx --compile-every 10 --save "$out/fuzz_onnx.PART.onnx"; }
fuzz_epilogues() { fuzz epilogues; }
fuzz_ir() { fuzz ir; }
fuzz_plans() { fuzz plans; }
fuzz_cli() { fuzz cli; }
# Fails if the tests notice too few of the faults (docs/testing.md has a score), or fail without one.
mutation() { python benchmarks/mutation.py --count "${MEMC_NIGHTLY_MUTANTS:-200}" --seed "$first" --jobs "$jobs" --least 60; }
# Rows are those of one commit: a sweep that was stopped goes on, another commit's starts anew.
sweep() {
  local models=() rows
  rows="$out/sweep-$(git rev-parse --short HEAD)"
  if [ -n "${MEMC_NIGHTLY_MODELS:-}" ]; then models=(--models "$MEMC_NIGHTLY_MODELS"); fi
  # shellcheck disable=SC2086  # Options, word by word.
  python benchmarks/compile_sweep.py --out "$rows.jsonl" --markdown "$rows.md" --jobs "$jobs" --cache "$cache" \
    "${models[@]}" ${MEMC_NIGHTLY_SWEEP:-}
}

# The seeds in as many parts as there are jobs, PART in options being a part's number; fails if one of them does. Kernels are
# compiled, not taken from the cache, through whose entries each compilation would look.
fuzz() {
  local name=$1 part=$(((cases + jobs - 1) / jobs)) pids=() failed=0 number
  shift
  for ((number = 0; number < jobs; number++)); do
    MEMC_KERNEL_CACHE=off timeout "$limit" python "benchmarks/fuzz_$name.py" --first $((first + number * part)) --count "$part" \
      "${@//PART/$number}" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return $failed
}

steps=(properties slow nodes pythons sanitizers fuzz_onnx fuzz_epilogues fuzz_ir fuzz_plans fuzz_cli mutation sweep)
if [ "${1:-}" = --list ]; then
  printf '%s\n' "${steps[@]}"
  exit
fi
for step in "$@"; do
  if [[ " ${steps[*]} " != *" $step "* ]]; then
    echo "$0: no step $step; expected some of ${steps[*]}" >&2
    exit 2
  fi
done
if [ $# -gt 0 ]; then steps=("$@"); fi

failed=0
closing=()
for step in "${steps[@]}"; do
  start=$SECONDS
  if "$step" 2>&1 | tee "$out/$step.log"; then word=passed; else word=FAILED; failed=$((failed + 1)); fi
  closing+=("$step: $word in $((SECONDS - start)) s: $(grep -v '^[[:space:]]*$' "$out/$step.log" | tail -n 1 | cut -c 1-160)")
  echo "${closing[-1]}"
done
echo
printf '%s\n' "${closing[@]}"
echo "nightly: $((${#steps[@]} - failed)) of ${#steps[@]} steps passed, first seed $first, logs in $out"
[ "$failed" = 0 ]
