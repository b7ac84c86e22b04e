// What the files of the emulated driver share. One lock guards everything; `Call` takes it for each function of the interface.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_abi.h"
#include "unit_abi.h"

// ---- options, from the environment (options.cpp)

struct Options {
    unsigned arch = 90;             // EMU_ARCH
    size_t memory = size_t(4) << 30;  // EMU_MEMORY, in MB
    unsigned processors = 8;        // EMU_PROCESSORS
    unsigned workers = 1;           // EMU_WORKERS
    bool late_streams = false;      // EMU_STREAMS=late
    bool stats = false;             // EMU_STATS
    enum { FORWARD, REVERSE, RANDOM } order = FORWARD;  // EMU_ORDER, of blocks
    uint64_t seed = 1;
};
const Options& options();
unsigned most_shared();  // with an opt-in, of the architecture

// A sentence on stderr, and the result given.
CUresult refuse(CUresult result, const char* format, ...) __attribute__((format(printf, 2, 3)));
double now_ms();

// ---- calls (context.cpp)

// At the head of every function: takes the lock, and knows why the call cannot be.
class Call {
public:
    // `unsafe`: not while this thread records a graph.
    explicit Call(const char* name, bool unsafe = false);
    CUresult refused;
    std::unique_lock<std::mutex> lock;
};
#define BEGIN(...)            \
    Call call(__VA_ARGS__);   \
    if (call.refused) return call.refused

void context_dies(CUresult why);
CUresult context_state();

// ---- memory (memory.cpp)

// Whether the device may reach these bytes; says why not.
bool reachable(const char* what, uint64_t at, size_t bytes);
// Whether the host may: not memory that lies on the device.
bool is_hosts(const char* what, const void* at, size_t bytes);
bool is_pinned(const void* at, size_t bytes);

// ---- work (stream.cpp)

struct Work {
    const char* what = "";
    std::function<bool()> ready;    // empty: at once
    std::function<CUresult()> run;
};
// A graph that a stream records, and the graph that comes of it.
struct Graph {
    std::vector<Work> nodes;
};
struct Stream {
    std::deque<Work> queue;
    std::shared_ptr<Graph> recording;
};
// Puts work on a stream, or into the graph that it records.
CUresult enqueue(Stream* stream, Work work);
// Runs what can run; the lock is held.
void run_streams();
void finish_all(std::unique_lock<std::mutex>& lock);
bool this_thread_captures();

// ---- kernels (module.cpp, workers.cpp)

struct Module {
    std::vector<void*> libraries;             // one for each worker
    std::vector<const device::Unit*> units;
    std::vector<std::unique_ptr<Function>> functions;
};
struct Function {
    Module* module;
    uint32_t number;
    const device::Entry* entry;
    size_t most_dynamic;  // what was opted in, at least 48 KB
};
struct Launch {
    Function* function;
    uint32_t grid[3], block[3];
    size_t shared;
    std::vector<std::vector<uint64_t>> values;
};
CUresult run_launch(const Launch& launch);
void start_workers();
