#!/usr/bin/env bash
# usage: check.sh FOLDER
# Checks the model of the flush epochs with Spin: without a bug every state must satisfy it, and each planted bug must be
# found. Works in FOLDER, which it makes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=$here/flush_epochs.pml
bugs=(ALWAYS_ELIDE NEED_IS_ISSUED STALE_BATCH TOLD_FIRST PUBLISH_FIRST OUT_OF_ORDER LATER_FAILURE LIST JOINER_RETURNS
  DURABLE_ON_FAILURE FORGET_FAILURE)
mkdir -p "$1"
cd "$1"

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
printf '%-22s %s states, %s errors\n' "as documented" "$states" "$errors"
if [[ $errors != 0 ]] || grep -q "max search depth too small" sound/pan.log; then
  status=1
fi
for bug in "${bugs[@]}"; do
  errors=$(check "$bug" "BUG_$bug")
  if [[ ${errors:-0} -gt 0 ]]; then
    printf '%-22s found\n' "$bug"
  else
    printf '%-22s NOT FOUND\n' "$bug"
    status=1
  fi
done
exit "$status"
