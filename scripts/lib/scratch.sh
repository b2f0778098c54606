# Sourced by the scripts that mount things. `use_scratch` gives the run a temporary folder of its own and an exit trap that
# takes down whatever is mounted below it, detaches the loop devices whose backing file is in it, and removes it. Nothing
# outside that folder is touched.

# Mount points at or below $1, innermost first. Octal escapes (blanks in names) are decoded.
mounts_below() {
  local point
  while read -r _ _ _ _ point _; do
    point=$(printf '%b' "$point")
    if [[ $point == "$1" || $point == "$1"/* ]]; then printf '%s\n' "$point"; fi
  done </proc/self/mountinfo | tac
}

# Loop devices with a backing file below $1, also a deleted one.
loops_below() {
  local file backing
  for file in /sys/block/loop*/loop/backing_file; do
    backing=$(cat "$file" 2>/dev/null) || continue
    if [[ $backing == "$1"/* ]]; then printf '/dev/%s\n' "$(basename "$(dirname "$(dirname "$file")")")"; fi
  done
}

clean_scratch() {
  local folder=$1 point loop device
  [[ -d $folder ]] || return 0
  while read -r point; do
    [[ -n $point ]] || continue
    # A hung FUSE server would hang umount as well: abort its connection first when the polite way fails.
    if ! timeout 60 umount "$point" 2>/dev/null; then
      device=$(awk -v point="$point" '$5 == point { split($3, number, ":"); print number[2] }' /proc/self/mountinfo | tail -n 1)
      if [[ -n $device && -w /sys/fs/fuse/connections/$device/abort ]]; then
        echo 1 >"/sys/fs/fuse/connections/$device/abort"
      fi
      timeout 20 umount -l "$point" || echo "cannot unmount $point" >&2
    fi
  done < <(mounts_below "$folder")
  for loop in $(loops_below "$folder"); do
    losetup -d "$loop" || echo "cannot detach $loop" >&2
  done
  rm -rf --one-file-system "$folder"
}

end_scratch() {
  # A script that runs a command in the background keeps its process number in `running`.
  if [[ -n ${running:-} ]] && kill "$running" 2>/dev/null; then
    wait "$running" || true
  fi
  cd /
  clean_scratch "$SCRATCH"
}

# Sets and exports TMPDIR. /var/tmp rather than /tmp, which may be a tmpfs without O_DIRECT.
use_scratch() {
  SCRATCH=$(mktemp -d "${TMPDIR:-/var/tmp}/elidefs.XXXXXX")
  SCRATCH=$(cd "$SCRATCH" && pwd -P)
  export TMPDIR=$SCRATCH
  trap 'status=$?; trap - EXIT; end_scratch; exit $status' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
}
