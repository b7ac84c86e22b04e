#!/bin/sh
# run.sh: builds and runs every test of this folder, two at a time, in the order that EMU_ORDER says (default: forward). SAN=1: with the
# sanitizers. What a test prints is shown if it fails.
cd "$(dirname "$0")" || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export dir
ls *.cpp | xargs -P 2 -I FILE sh -c '
    test=$(basename FILE .cpp)
    if ../build.sh "$PWD/FILE" "$dir/$test" >"$dir/$test.log" 2>&1 && "$dir/$test" >>"$dir/$test.log" 2>&1; then
        echo "passed  $test: $(grep -c "^ok " "$dir/$test.log") comparisons"
    else
        cat "$dir/$test.log"
        echo "FAILED  $test"
        exit 1
    fi'
