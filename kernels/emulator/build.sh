#!/bin/sh
# build.sh TEST.cpp [OUT [more g++ options]]: makes the units that the test names in lines "// unit: FILE.cu [emu.py's options]"
# (FILE below the folder kernels or a full path; $UNITS overrides the folder), compiles and leaves OUT (default /tmp/emu/STEM).
# SAN=1: with the address and undefined-behaviour sanitizers (reads over the end of shared or device memory, misaligned accesses,
# shifts by 32 and more).
set -e
here=$(cd "$(dirname "$0")" && pwd)
test=$1
stem=$(basename "$test" .cpp)
out=${2:-/tmp/emu/$stem${SAN:+.san}}
shift; [ $# -gt 0 ] && shift
dir=/tmp/emu/$stem.units${SAN:+.san}.$$
mkdir -p "$dir" "$(dirname "$out")"
sed -n 's,^// unit: *,,p' "$test" | while read -r file options; do
    case $file in /*) ;; *) file=${UNITS:-$here/..}/$file ;; esac
    set -- $options
    ns=$(basename "$file" .cu | tr -c 'A-Za-z0-9_\n' _)
    prev=
    for o in $options; do [ "$prev" = --ns ] && ns=$o; prev=$o; done
    (cd "$here" && python3 emu.py "$file" $options -o "$dir/$ns.unit")
done
flags="-O2 -gdwarf-4 -std=c++20 -ffp-contract=off -fno-fast-math -fno-math-errno -fno-strict-aliasing -fno-optimize-sibling-calls -mfma -mf16c -Wall -Wno-unknown-pragmas -fmax-errors=10"
[ -n "$SAN" ] && flags="$flags -O1 -fsanitize=address,alignment,shift,bounds,null,integer-divide-by-zero -fno-sanitize-recover=all"
g++ $flags -I"$dir" -I"$here" -I"$here/tests" "$@" "$test" -o "$out"
rm -rf "$dir"
