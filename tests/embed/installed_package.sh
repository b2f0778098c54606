#!/usr/bin/env bash
# usage: installed_package.sh BUILD-FOLDER COMPILER BUILD-TYPE
# Installs into a temporary prefix, then builds and runs a program that knows nothing but that prefix.
set -euo pipefail
build=$1 compiler=$2 type=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cmake --install "$build" --prefix "$folder/prefix" >"$folder/log" || { cat "$folder/log"; exit 1; }
cp -r "$(dirname "$0")/consumer" "$folder/source"
cmake -S "$folder/source" -B "$folder/build" -G Ninja -DCMAKE_PREFIX_PATH="$folder/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE="$type"
cmake --build "$folder/build"
"$folder/build/consumer" "$folder/prefix/include/elidefs"
test -x "$folder/prefix/bin/elidefs"
