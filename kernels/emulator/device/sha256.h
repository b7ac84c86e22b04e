// SHA-256 (FIPS 180-4), for the names of compiled units.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

class Sha256 {
public:
    Sha256() {
        // Fractions of roots of the first primes.
        for (uint32_t n = 2, i = 0; i < 64; n++) {
            bool prime = true;
            for (uint32_t d = 2; d * d <= n; d++) prime = prime && n % d;
            if (!prime) continue;
            if (i < 8) state[i] = fraction(sqrtl(n));
            k[i++] = fraction(cbrtl(n));
        }
    }
    void add(const void* from, size_t bytes) {
        for (size_t i = 0; i < bytes; i++) {
            block[total++ % 64] = ((const uint8_t*)from)[i];
            if (total % 64 == 0) take();
        }
    }
    std::string hex() {
        const uint64_t bits = total * 8;
        const uint8_t one = 0x80, zero = 0;
        add(&one, 1);
        while (total % 64 != 56) add(&zero, 1);
        for (int i = 7; i >= 0; i--) {
            const uint8_t byte = uint8_t(bits >> (8 * i));
            add(&byte, 1);
        }
        char text[65];
        for (int i = 0; i < 8; i++) snprintf(text + 8 * i, 9, "%08x", state[i]);
        return text;
    }

private:
    uint32_t state[8], k[64];
    uint8_t block[64];
    uint64_t total = 0;

    static uint32_t fraction(long double root) { return uint32_t(uint64_t((root - floorl(root)) * 4294967296.0L)); }
    static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }
    void take() {
        uint32_t w[64], s[8];
        for (int i = 0; i < 16; i++) w[i] = uint32_t(block[4 * i]) << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 | block[4 * i + 3];
        for (int i = 16; i < 64; i++) {
            const uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + w[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
        }
        for (int i = 0; i < 8; i++) s[i] = state[i];
        for (int i = 0; i < 64; i++) {
            const uint32_t e = s[4], a = s[0];
            const uint32_t x = s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
            const uint32_t y = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
            for (int j = 7; j > 0; j--) s[j] = s[j - 1];
            s[4] += x, s[0] = x + y;
        }
        for (int i = 0; i < 8; i++) state[i] += s[i];
    }
};
