#!/usr/bin/env bash
# Prepares a bare GPU machine as tests/tools/h200_record.sh does and measures savings there. From the repository root:
#   tests/benchmarks/h200_savings.sh OUT [options of h200_savings.py measure]
set -uo pipefail
out=$1
shift
source tests/tools/h200_environment.sh
python3 tests/benchmarks/h200_savings.py measure --out "$out" "$@"
