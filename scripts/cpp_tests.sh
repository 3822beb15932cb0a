#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build and run the C++ unit tests (tests/cpp), without Python and tvm-ffi, in build/cpp-tests.
#
#   scripts/cpp_tests.sh              as they are shipped
#   scripts/cpp_tests.sh --sanitize   under AddressSanitizer and UndefinedBehaviorSanitizer
#   scripts/cpp_tests.sh --threads    those of threads alone, under ThreadSanitizer
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  "") build=build/cpp-tests options=(-DMEMC_SANITIZE=OFF) tests=() ;;
  --sanitize) build=build/cpp-tests-sanitize options=(-DMEMC_SANITIZE=ON) tests=() ;;
  --threads) build=build/cpp-tests-threads options=(-DMEMC_SANITIZE_THREADS=ON) tests=(test_copy_lanes test_replay_threads) ;;
  *)
    echo "$0: unknown argument $1; expected --sanitize, --threads or none" >&2
    exit 2
    ;;
esac
jobs=${MEMC_TEST_WORKERS:-2}
cmake -S . -B "$build" -DMEMC_CORE=OFF -DMEMC_TESTS=ON -DMEMC_WERROR=ON "${options[@]}" >/dev/null
cmake --build "$build" --parallel "$jobs" ${tests[0]+--target "${tests[@]}"}
export TSAN_OPTIONS=halt_on_error=1
ctest --test-dir "$build" --output-on-failure --parallel "$jobs" ${tests[0]+-R "$(IFS='|'; echo "${tests[*]}")"}
