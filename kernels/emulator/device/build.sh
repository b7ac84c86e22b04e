#!/bin/sh
# build.sh DIR: makes the emulated device in DIR: libcuda.so.1, libnvrtc.so.12, and a copy of the emulator for units. See ../README.md.
set -e
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?a folder}
mkdir -p "$out/emulator"
cp "$here/../emu.py" "$here/../emu.h" "$here/../emu_device.h" "$here/unit.h" "$here/unit_abi.h" "$out/emulator/"
# How units are compiled: exact arithmetic as in ../build.sh, every symbol their own, lines for faults.
echo "${EMU_FLAGS:--O1} -g1 -std=c++20 -ffp-contract=off -fno-fast-math -fno-math-errno -fno-strict-aliasing -fno-optimize-sibling-calls -mfma -mf16c -fPIC -shared -fvisibility=hidden -fno-gnu-unique -w" >"$out/emulator/flags"
# The head of every unit, read by g++ once.
unit_flags=$(cat "$out/emulator/flags")
g++ $unit_flags -I"$out/emulator" -x c++-header "$out/emulator/unit.h" -o "$out/emulator/unit.h.gch" &
head=$!
flags="-O1 -g1 -std=c++20 -fPIC -shared -fvisibility=hidden -Wall -Wextra -pthread"
g++ $flags -Wl,-soname,libcuda.so.1 "$here/options.cpp" "$here/context.cpp" "$here/memory.cpp" "$here/stream.cpp" "$here/copy.cpp" \
    "$here/module.cpp" "$here/workers.cpp" -o "$out/libcuda.so.1" -ldl &
cuda=$!
g++ $flags -Wl,-soname,libnvrtc.so.12 "$here/nvrtc.cpp" -o "$out/libnvrtc.so.12" -ldl
wait $cuda
wait $head
