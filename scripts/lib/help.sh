# Sourced. print_usage: the comment at the head of the calling script; show_help "$@": the same for -h or --help, and ends.
print_usage() { sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"; }
show_help() {
  if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    print_usage
    exit 0
  fi
}
