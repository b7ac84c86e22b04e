#!/usr/bin/env python3
"""Writes src/grid/codes.rs from the codebook constants in grids.safetensors.

    python3 crates/quant-kernels/tables/make_tables.py GRIDS.safetensors > crates/quant-kernels/src/grid/codes.rs

Each entry of a codebook is 8 (or 4) values out of at most 3 (or 8). The table holds the position of each value in the
sorted list of values, 2 (or 3) bits each, lowest first, so every entry fits 16 bits; src/grid.rs expands them in const.
tests/tables.rs compares the expanded tables with the same file.
"""

import sys

import numpy as np
from safetensors.numpy import load_file

GRIDS = [("iq1_s_grid", 2), ("iq2_xxs_grid", 2), ("iq2_xs_grid", 2), ("iq2_s_grid", 2), ("iq3_xxs_grid", 3), ("iq3_s_grid", 3)]
PER_LINE = 13


def main():
    grids = load_file(sys.argv[1])
    print("//! Codebook entries in packed form. Made by tables/make_tables.py; do not edit.")
    for name, bits in GRIDS:
        grid = grids[name]
        values = np.unique(grid)
        assert len(values) <= 1 << bits
        codes = np.searchsorted(values, grid)
        packed = [sum(int(c) << (bits * i) for i, c in enumerate(row)) for row in codes]
        print()
        print(f"/// `{name}`: {bits} bits a value, out of {values.tolist()}.")
        print(f"pub(crate) const {name.upper()}: [u16; {len(packed)}] = [")
        for i in range(0, len(packed), PER_LINE):
            print("    " + ", ".join(f"0x{p:04x}" for p in packed[i : i + PER_LINE]) + ",")
        print("];")


main()
