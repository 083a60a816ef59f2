#!/usr/bin/env bash
# Prepares a bare GPU machine and records the sample traces there. From the repository root:
#   tests/tools/h200_record.sh OUT [options of h200_record.py]
# Beside the repository's files it takes, where they are: wheels of ultralytics, ultralytics-thop, nvtx (and polars) in
# .whl/, and the Debian packages libdw1, libelf1 and libdebuginfod1 in .deb/.
set -uo pipefail
out=$1
shift
source tests/tools/h200_environment.sh
python3 tests/tools/h200_record.py --out "$out" ${nsys:+--nsys "$nsys"} "$@"
