// For tests: random values by seed, comparison of bits, files, and plain references of docs/ARITHMETIC.md.
#pragma once
#include "emu.h"
#include <string>
#include <vector>

namespace test {
using emu::i32;
using emu::i8;
using emu::u16;
using emu::u32;
using emu::u64;
using emu::u8;

inline int failures;

struct Random {
    u64 state;
    explicit Random(u64 seed) : state(seed * 0x9e3779b97f4a7c15ull + 1) {}
    u32 word() {
        state += 0x9e3779b97f4a7c15ull;
        u64 z = state;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return u32((z ^ (z >> 31)) >> 32);
    }
    u32 below(u32 n) { return u32((u64(word()) * n) >> 32); }
    float uniform(float from, float to) { return from + (to - from) * (float(word() >> 8) * 0x1p-24f); }
    // Roughly normal.
    float normal(float scale = 1.0f) {
        float sum = 0.0f;
        for (int i = 0; i < 6; i++) sum += uniform(-1.0f, 1.0f);
        return sum * 0.70710678f * scale;
    }
    std::vector<float> normals(size_t n, float scale = 1.0f) {
        std::vector<float> v(n);
        for (float& x : v) x = normal(scale);
        return v;
    }
    std::vector<float> uniforms(size_t n, float from, float to) {
        std::vector<float> v(n);
        for (float& x : v) x = uniform(from, to);
        return v;
    }
    std::vector<u8> bytes(size_t n) {
        std::vector<u8> v(n);
        for (u8& x : v) x = u8(word());
        return v;
    }
};

template <typename T>
inline std::string shown(T v) {
    char text[64];
    if constexpr (std::is_same_v<T, float>) {
        snprintf(text, sizeof text, "%.9g (0x%08x)", double(v), __float_as_uint(v));
    } else {
        snprintf(text, sizeof text, "%lld (0x%llx)", (long long)v, (unsigned long long)v);
    }
    return text;
}

// Equal bits? Says the first difference, and how many there are.
template <typename T>
inline bool same(const char* name, const T* got, const T* want, size_t n) {
    size_t first = n, count = 0;
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof(T))) {
            if (first == n) first = i;
            count++;
        }
    }
    if (count) {
        printf("FAIL %s: %zu of %zu differ, first [%zu]: got %s, want %s\n", name, count, n, first, shown(got[first]).c_str(),
               shown(want[first]).c_str());
        failures++;
    } else {
        printf("ok   %s: %zu equal\n", name, n);
    }
    return count == 0;
}
template <typename T>
inline bool same(const char* name, const std::vector<T>& got, const std::vector<T>& want) {
    if (got.size() != want.size()) {
        printf("FAIL %s: %zu values, want %zu\n", name, got.size(), want.size());
        failures++;
        return false;
    }
    return same(name, got.data(), want.data(), got.size());
}
inline bool check(const char* name, bool good) {
    if (!good) failures++;
    printf("%s %s\n", good ? "ok  " : "FAIL", name);
    return good;
}
inline int end() {
    printf(failures ? "%d FAILURES\n" : "all ok\n", failures);
    return failures != 0;
}

inline std::vector<u8> read_file(const char* path) {
    FILE* f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(2);
    }
    std::vector<u8> out;
    u8 part[65536];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) out.insert(out.end(), part, part + n);
    fclose(f);
    return out;
}

// ---- docs/ARITHMETIC.md

inline float tree(std::vector<float> v) {
    if (v.empty()) return 0.0f;
    while (v.size() & (v.size() - 1)) v.push_back(0.0f);
    while (v.size() > 1) {
        for (size_t i = 0; i < v.size() / 2; i++) v[i] = v[2 * i] + v[2 * i + 1];
        v.resize(v.size() / 2);
    }
    return v[0];
}

// A sum in dot order: step(i, sum) is the sum with element i.
template <typename Step>
inline float in_dot_order(size_t n, Step step) {
    std::vector<float> blocks;
    for (size_t from = 0; from < n; from += 256) {
        std::vector<float> lanes(32, 0.0f);
        for (size_t j = 0; j < 32; j++) {
            for (size_t i = from + j; i < n && i < from + 256; i += 32) lanes[j] = step(i, lanes[j]);
        }
        blocks.push_back(tree(lanes));
    }
    return tree(blocks);
}
inline float dot(const float* a, const float* b, size_t n) {
    return in_dot_order(n, [&](size_t i, float s) { return __builtin_fmaf(a[i], b[i], s); });
}

inline float canon_exp(float t) {
    auto bits = [](u32 w) { return __uint_as_float(w); };
    t = t > 87.0f ? 87.0f : t;
    t = t < -87.0f ? -87.0f : t;
    const float s = __builtin_fmaf(t, bits(0x3fb8aa3b), bits(0x4b400000)), n = s - bits(0x4b400000);
    float r = __builtin_fmaf(n, -bits(0x3f317218), t);
    r = __builtin_fmaf(n, -bits(0xb102e308), r);
    float p = bits(0x3ab5121a);
    for (u32 c : {0x3c091cf1u, 0x3d2aac79u, 0x3e2aaa49u, 0x3efffffeu, 0x3f800000u, 0x3f800000u}) p = __builtin_fmaf(p, r, bits(c));
    return p * bits((__float_as_uint(s) + 127u) << 23);
}
inline float sigmoid(float t) { return 1.0f / (1.0f + canon_exp(-t)); }
inline float silu(float t) { return t / (1.0f + canon_exp(-t)); }

// Activations of the fast products: bytes and a scale a block of `block` values.
inline void quantize(const float* x, size_t k, size_t block, std::vector<i8>& q, std::vector<float>& scale) {
    q.assign(k, 0);
    scale.clear();
    for (size_t from = 0; from < k; from += block) {
        const size_t end = from + block < k ? from + block : k;
        float amax = 0.0f;
        for (size_t i = from; i < end; i++) amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
        if (amax < 0x1p-100f) {
            scale.push_back(0.0f);
            continue;
        }
        scale.push_back(amax / 127.0f);
        const float inverse = 127.0f / amax;
        for (size_t i = from; i < end; i++) {
            float r = rintf(x[i] * inverse);
            q[i] = i8(r > 127.0f ? 127.0f : r < -127.0f ? -127.0f : r);
        }
    }
}
}  // namespace test
