#!/usr/bin/env bash
# Measures what the recorder costs with the profiler off, and records the faults of memory, on a bare GPU machine.
# From the repository root:
#   tests/tools/h200_overhead.sh OUT SECONDS [JOB…]
# No job starts that might not end within SECONDS; those left are named at the end, to be given the next time. Results
# of the measurement go to OUT/overhead.jsonl, recordings to OUT/runs-*.tar (see h200_environment.sh for what may lie
# beside the repository's files). TINY=1 tries the script without a GPU.
set -uo pipefail
out=$1 budget=$2
shift 2
jobs=("$@")
[ ${#jobs[@]} -gt 0 ] || jobs=(steady-1 memory steady-2 steady-3 dose device-bound fast others steady-4 placebo)
mkdir -p "$out"
source tests/tools/h200_environment.sh
work=${WORK:-/tmp/traceanalyzer-runs}
begin=$SECONDS
left=()

overhead() { # LIMIT OPTIONS…: one training
  local limit=$1
  shift
  local tiny=()
  [ -z "${TINY:-}" ] || tiny=(--steps=8 --batch=2 --imgsz=64 --workers=2 --batches=12 --warm-up=4 --loader-pairs=2)
  timeout --signal=INT --kill-after=10 "$limit" python3 tests/tools/instrumentation_overhead.py \
    --out="$out/overhead.jsonl" --dataset-dir="$work/data" --loader-pairs=20 "$@" "${tiny[@]}"
}

record() { # SECONDS NAMES…
  local limit=$1
  shift
  python3 tests/tools/h200_record.py --out "$out" --work "$work" --budget "$limit" ${TINY:+--tiny} --only "$@"
}

job() { # NAME LIMIT COMMAND…
  local name=$1 limit=$2
  shift 2
  if [ $((SECONDS - begin + limit)) -gt "$budget" ]; then
    left+=("$name")
    return
  fi
  local start=$SECONDS
  "$@" 2>&1 | tee -a "$out/log.txt" || left+=("$name")
  echo "$name: $((SECONDS - start)) s, $((SECONDS - begin)) s in all" | tee -a "$out/log.txt"
}

mkdir -p "$work"
for name in "${jobs[@]}"; do
  case $name in
    long-*)
      job "$name" 128 overhead 126 --seed="${name#long-}" --steps=8000 --seconds=90 --loader-pairs=0 --batches=88 ;;
    nothing) job "$name" 72 overhead 70 --seed=21 --dose=0 --steps=8000 --seconds=40 --loader-pairs=0 --batches=88 ;;
    steady-*) job "$name" 110 overhead 105 --seed="${name#steady-}" --steps=1600 --seconds=58 ;;
    dose) job "$name" 90 overhead 85 --seed=11 --dose=10 --steps=800 --seconds=35 ;;
    placebo) job "$name" 90 overhead 85 --seed=14 --dose=0 --steps=800 --seconds=35 ;;
    device-bound)
      job "$name" 105 overhead 100 --seed=12 --model=yolo11m.yaml --batch=32 --workers=12 --steps=400 --seconds=45 ;;
    fast) job "$name" 80 overhead 75 --seed=13 --batch=2 --imgsz=160 --workers=4 --steps=1200 --seconds=35 ;;
    memory) job "$name" 170 record 170 memory-cap fragmentation ;;
    others) job "$name" 180 record 180 lazy-loading low-prefetch channels-last-off ;;
    *) echo "no such job: $name" ;;
  esac
done
[ ! -s "$out/overhead.jsonl" ] || python3 tests/tools/instrumentation_overhead.py --table "$out/overhead.jsonl" | tee "$out/overhead.md"
echo "not done: ${left[*]:-nothing}"
