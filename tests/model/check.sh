#!/usr/bin/env bash
# usage: check.sh MODEL FOLDER
# Checks tests/model/MODEL.pml with Spin: without a bug every state must satisfy it, and each planted bug (a BUG_NAME in the
# model) must be found. Works in FOLDER, which it makes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=$here/$1.pml
mapfile -t bugs < <(grep -oE '\bBUG_[A-Z][A-Z_]*' "$model" | sed 's/^BUG_//' | sort -u)
mkdir -p "$2"
cd "$2"

# check NAME [DEFINE]: prints the number of errors and of states.
check() {
  mkdir -p "$1"
  (
    cd "$1"
    rm -f pan*
    spin -a ${2:+"-D$2"} "$model" >spin.log
    # Safety: assertions and invalid end states, which are syncs that never return.
    cc -O2 -DSAFETY -DMEMLIM=4096 -DCOLLAPSE -o pan pan.c >cc.log 2>&1
    ./pan -m200000 >pan.log 2>&1
    awk '/errors:/ { print $NF } ' pan.log | head -1
  )
}

status=0
errors=$(check sound)
states=$(awk '/states, stored/ { print $1 }' sound/pan.log)
printf '%-24s %s states, %s errors\n' "as documented" "$states" "$errors"
if [[ $errors != 0 ]] || grep -q "max search depth too small" sound/pan.log; then
  status=1
fi
if [[ ${#bugs[@]} -eq 0 ]]; then status=1; fi
for bug in "${bugs[@]}"; do
  errors=$(check "$bug" "BUG_$bug")
  if [[ ${errors:-0} -gt 0 ]]; then
    printf '%-24s found\n' "$bug"
  else
    printf '%-24s NOT FOUND\n' "$bug"
    status=1
  fi
done
exit "$status"
