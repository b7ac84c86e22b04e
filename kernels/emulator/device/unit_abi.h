// What libcuda.so.1 and a unit that emu.py made say to each other. Both are built by one compiler from this header.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace device {
constexpr uint32_t UNIT_VERSION = 1, MOST_THREADS = 1024;
constexpr size_t STACK = 192 * 1024;  // of each thread of a block; the lowest page is none

struct Entry {
    const char* name;
    uint32_t most_threads;  // __launch_bounds__, or 1024
    uint32_t n_parameters;
    const uint32_t* sizes;  // of the parameters, in bytes
};

// A launch, as every worker gets it. Each takes blocks until none is left.
struct Share {
    uint32_t entry;  // its number in the unit's list
    uint32_t grid[3], block[3];
    size_t shared;
    void** places;             // of the parameters' values
    uint64_t blocks;
    const uint32_t* turn;      // the order of blocks, or null
    std::atomic<uint64_t>* next;
};

struct Unit {
    uint32_t version, arch;
    size_t static_shared;
    const Entry* entries;
    size_t n_entries;
    // With a worker's stacks for the threads of a block. False: a fault, which it has told.
    bool (*run)(const Share& share, uint8_t* stacks);
    // For a signal's handler on the thread that runs: does not return.
    void (*fault)(int number, const void* address, const void* code);
};
}  // namespace device

// The one symbol that a unit shows.
extern "C" const device::Unit* emu_unit();
