#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build and run the C++ unit tests (tests/cpp), without Python and tvm-ffi, in build/cpp-tests.
#
#   scripts/cpp_tests.sh              as they are shipped
#   scripts/cpp_tests.sh --sanitize   under AddressSanitizer and UndefinedBehaviorSanitizer
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  "") build=build/cpp-tests sanitize=OFF ;;
  --sanitize) build=build/cpp-tests-sanitize sanitize=ON ;;
  *)
    echo "$0: unknown argument $1; expected --sanitize or none" >&2
    exit 2
    ;;
esac
jobs=${MEMC_TEST_WORKERS:-2}
cmake -S . -B "$build" -DMEMC_CORE=OFF -DMEMC_TESTS=ON -DMEMC_WERROR=ON -DMEMC_SANITIZE="$sanitize" >/dev/null
cmake --build "$build" --parallel "$jobs"
ctest --test-dir "$build" --output-on-failure --parallel "$jobs"
