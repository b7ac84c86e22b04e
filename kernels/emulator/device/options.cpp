// What the environment says, and sentences.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "driver.h"

static unsigned long long number(const char* name, unsigned long long otherwise, unsigned long long least, unsigned long long most) {
    const char* text = getenv(name);
    if (!text || !*text) return otherwise;
    char* end;
    const unsigned long long value = strtoull(text, &end, 10);
    if (!*end && value >= least && value <= most) return value;
    fprintf(stderr, "emulated device: %s is `%s`; it may be a number from %llu to %llu\n", name, text, least, most);
    exit(3);
}

static Options read_options() {
    Options o;
    o.arch = unsigned(number("EMU_ARCH", o.arch, 70, 129));
    o.memory = size_t(number("EMU_MEMORY", o.memory >> 20, 1, 1 << 20)) << 20;
    o.processors = unsigned(number("EMU_PROCESSORS", o.processors, 1, 1024));
    const unsigned cores = std::thread::hardware_concurrency();
    o.workers = unsigned(number("EMU_WORKERS", cores < 1 ? 1 : cores > 8 ? 8 : cores, 1, 64));
    o.stats = getenv("EMU_STATS") != nullptr;
    const char* streams = getenv("EMU_STREAMS");
    o.late_streams = streams && !strcmp(streams, "late");
    if (const char* order = getenv("EMU_ORDER")) {
        if (!strcmp(order, "reverse")) o.order = Options::REVERSE;
        if (!strncmp(order, "random", 6)) o.order = Options::RANDOM, o.seed = order[6] ? strtoull(order + 7, nullptr, 10) : 1;
    }
    return o;
}

const Options& options() {
    static const Options all = read_options();
    return all;
}

unsigned most_shared() {
    switch (options().arch) {
        case 70: return 96 << 10;
        case 75: return 64 << 10;
        case 80: case 87: return 163 << 10;
        case 90: case 100: case 103: return 227 << 10;
        default: return 99 << 10;
    }
}

CUresult refuse(CUresult result, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("emulated device: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return result;
}

double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
