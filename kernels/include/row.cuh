// One weight of a row as f32, with the bits that GGML gives it (crates/quant-kernels/src/{narrow,wide}.rs): of formats without a
// codebook.
#pragma once
#include "base.cuh"

// Numbers of formats, as the host gives them.
enum RowFormat : u32 { ROW_F32, ROW_F16, ROW_BF16, ROW_Q4_0, ROW_Q4_1, ROW_Q5_0, ROW_Q5_1, ROW_Q8_0, ROW_Q2_K, ROW_Q3_K, ROW_Q4_K, ROW_Q5_K, ROW_Q6_K };

// A half at an even address.
DEV float half_from(const u8* at) { return half_value(*reinterpret_cast<const u16*>(at)); }

DEV i32 nibble_at(const u8* qs, u32 i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

// Weight `i` of 32.
DEV float narrow_weight(u32 format, const u8* block, u32 i) {
    const float d = half_from(block);
    if (format == ROW_Q8_0) return d * float(i32(i8(block[2 + i])));
    if (format == ROW_Q4_0) return d * float(nibble_at(block + 2, i) - 8);
    if (format == ROW_Q4_1) return d * float(nibble_at(block + 4, i)) + half_from(block + 2);
    const u8* const high = block + (format == ROW_Q5_1 ? 4 : 2);
    const i32 q = nibble_at(high + 4, i) | (high[i / 8] >> (i % 8) & 1) << 4;
    if (format == ROW_Q5_0) return d * float(q - 16);
    return d * float(q) + half_from(block + 2);
}

// The field of two bits of weight `i`, of 64 bytes.
DEV i32 two_bits(const u8* qs, u32 i) { return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }

// Weight `i` of 256.
DEV float wide_weight(u32 format, const u8* block, u32 i) {
    const u32 part = i / 16;
    if (format == ROW_Q2_K) {
        const float scale = half_from(block + 80) * float(i32(block[part] & 15)), min = half_from(block + 82) * float(i32(block[part] >> 4));
        return scale * float(two_bits(block + 16, i)) - min;
    }
    if (format == ROW_Q3_K) {
        const u8* const scales = block + 96;
        const i32 low = scales[part % 8] >> (part / 8 * 4) & 15, high = scales[8 + part % 4] >> (part / 4 * 2) & 3;
        const float scale = half_from(block + 108) * float((low | high << 4) - 32);
        return scale * float(two_bits(block + 32, i) - (block[i % 32] >> (i / 32) & 1 ? 0 : 4));
    }
    if (format == ROW_Q6_K) {
        const u32 l = i % 32, j = i % 128 / 32, half = i / 128;
        const i32 low = block[half * 64 + j % 2 * 32 + l] >> (j / 2 * 4) & 15, high = block[128 + half * 32 + l] >> (2 * j) & 3;
        const float scale = half_from(block + 208) * float(i32(i8(block[192 + part])));
        return scale * float((low | high << 4) - 32);
    }
    // Q4_K, and Q5_K with a fifth bit: six-bit scales and minima of runs of 32.
    const u32 run = i / 32;
    const u8 *const scales = block + 4, *const high = block + 16, *const qs = format == ROW_Q5_K ? block + 48 : high;
    const i32 scale = run < 4 ? scales[run] & 63 : (scales[run + 4] & 15) | (scales[run - 4] >> 6) << 4;
    const i32 min = run < 4 ? scales[run + 4] & 63 : (scales[run + 4] >> 4) | (scales[run] >> 6) << 4;
    i32 q = qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
    if (format == ROW_Q5_K) q |= (high[i % 32] >> run & 1) << 4;
    return (half_from(block) * float(scale)) * float(q) - half_from(block + 2) * float(min);
}

// Weight `i` of a row.
DEV float row_weight(u32 format, const u8* row, u32 i) {
    switch (format) {
        case ROW_F32: return reinterpret_cast<const float*>(row)[i];
        case ROW_F16: return half_from(row + 2 * size_t(i));
        case ROW_BF16: return __uint_as_float(u32(reinterpret_cast<const u16*>(row)[i]) << 16);
        case ROW_Q4_0: return narrow_weight(ROW_Q4_0, row + size_t(i / 32) * 18, i % 32);
        case ROW_Q4_1: return narrow_weight(ROW_Q4_1, row + size_t(i / 32) * 20, i % 32);
        case ROW_Q5_0: return narrow_weight(ROW_Q5_0, row + size_t(i / 32) * 22, i % 32);
        case ROW_Q5_1: return narrow_weight(ROW_Q5_1, row + size_t(i / 32) * 24, i % 32);
        case ROW_Q8_0: return narrow_weight(ROW_Q8_0, row + size_t(i / 32) * 34, i % 32);
        case ROW_Q2_K: return wide_weight(ROW_Q2_K, row + size_t(i / 256) * 84, i % 256);
        case ROW_Q3_K: return wide_weight(ROW_Q3_K, row + size_t(i / 256) * 110, i % 256);
        case ROW_Q4_K: return wide_weight(ROW_Q4_K, row + size_t(i / 256) * 144, i % 256);
        case ROW_Q5_K: return wide_weight(ROW_Q5_K, row + size_t(i / 256) * 176, i % 256);
        default: return wide_weight(ROW_Q6_K, row + size_t(i / 256) * 210, i % 256);
    }
}
