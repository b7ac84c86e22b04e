// CUDA kernels on the CPU, thread-exact: each thread of a block is a fiber, blocks run one after the other. See README.md.
#pragma once
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#include <dlfcn.h>
#include <elf.h>
#include <smmintrin.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// ---- types

struct alignas(8) float2 { float x, y; };
struct float3 { float x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct int3 { int x, y, z; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(4) short2 { short x, y; };
struct alignas(8) short4 { short x, y, z, w; };
struct alignas(4) ushort2 { unsigned short x, y; };
struct alignas(8) ushort4 { unsigned short x, y, z, w; };
struct alignas(2) char2 { signed char x, y; };
struct alignas(4) char4 { signed char x, y, z, w; };
struct alignas(2) uchar2 { unsigned char x, y; };
struct alignas(4) uchar4 { unsigned char x, y, z, w; };
struct alignas(16) longlong2 { long long x, y; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };
struct alignas(16) double2 { double x, y; };
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
#define EMU_MAKE2(T, E) inline T make_##T(E x, E y) { return {x, y}; }
#define EMU_MAKE3(T, E) inline T make_##T(E x, E y, E z) { return {x, y, z}; }
#define EMU_MAKE4(T, E) inline T make_##T(E x, E y, E z, E w) { return {x, y, z, w}; }
EMU_MAKE2(float2, float) EMU_MAKE3(float3, float) EMU_MAKE4(float4, float)
EMU_MAKE2(int2, int) EMU_MAKE3(int3, int) EMU_MAKE4(int4, int)
EMU_MAKE2(uint2, unsigned) EMU_MAKE3(uint3, unsigned) EMU_MAKE4(uint4, unsigned)
EMU_MAKE2(short2, short) EMU_MAKE4(short4, short) EMU_MAKE2(ushort2, unsigned short) EMU_MAKE4(ushort4, unsigned short)
EMU_MAKE2(char2, signed char) EMU_MAKE4(char4, signed char) EMU_MAKE2(uchar2, unsigned char) EMU_MAKE4(uchar4, unsigned char)
EMU_MAKE2(longlong2, long long) EMU_MAKE2(ulonglong2, unsigned long long) EMU_MAKE2(double2, double)

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))

#define EMU_NOINLINE __attribute__((noipa)) inline

namespace emu {
typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef unsigned long long u64;

constexpr u32 MOST_THREADS = 1024, MOST_SHARED = 232448, GUARD = 4096;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t STACK = 1024 * 1024;
#else
constexpr size_t STACK = 192 * 1024;
#endif

alignas(4096) inline u8 shared_area[MOST_SHARED + GUARD];

// ---- state

struct Fiber {
    uint3 tid;
    u32 lane, warp;
    void* sp;
    bool exited;
    const char* what;  // it waits for
    void* where;
    u64 which;         // mask, barrier's number, or address
    void* fake;        // ASan's
};

struct Warp;
typedef void (*Done)(Warp&, u32 lanes);

struct Group {
    u32 mask, arrived;
    Done done;
};

struct Warp {
    u32 ready, exited, number;
    u32 groups_n;
    Group groups[32];
    u64 value[32];   // given to a collective
    u32 source[32];  // a shuffle's lane; 0xffffffff: its own
    u64 result[32];
};

struct Barrier {
    u32 arrived, expected;  // 0: all that have not exited
    u32 waiting[32];
    u32 votes, result_count;
};

struct Copy {  // that is under way
    u8* to;
    const u8* from;
    u32 bytes;
    u64* barrier;  // null: by copies_end and copies_wait
};

struct Block {
    u32 threads, warps, alive, ready_warps;
    size_t shared;
    void (*call)(void*);
    void* argument;
    void* main_sp;
    void* main_fake;
    const void* main_bottom;
    size_t main_size;
    bool running;
    bool failed;  // of a unit of the emulated device: the launch is given up
    Warp warp[32];
    Barrier barrier[16];
};

inline Fiber fibers[MOST_THREADS];
inline Fiber* cur;
inline Block block;
inline u8* stacks;
inline const char* kernel_name = "?";

enum Order { FORWARD, REVERSE, RANDOM };
inline Order order = FORWARD;
inline u64 random_state = 1;
inline bool late = false;   // copies come as late as they may
inline bool stats = false;
inline u64 switches, thread_runs, undefined_reads;
inline std::map<const void*, u32>& bounds() {
    static std::map<const void*, u32> all;
    return all;
}
// Variables in shared memory, which emu.py makes known.
inline std::vector<std::pair<void*, size_t>>& static_shared() {
    static std::vector<std::pair<void*, size_t>> all;
    return all;
}
struct Shared {
    Shared(void* place, size_t bytes) {
        static_shared().push_back({place, bytes});
        memset(place, 0xcb, bytes);
    }
};
struct Bound {
    Bound(const void* kernel, u32 threads) { bounds()[kernel] = threads; }
};
// Per thread: groups of copies that are under way, of late mode.
inline std::vector<std::vector<Copy>> open_groups[MOST_THREADS];
inline std::vector<Copy> open_copies[MOST_THREADS];
inline std::vector<Copy> bulk_copies;
}  // namespace emu

inline dim3 blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;
#define threadIdx (emu::cur->tid)

namespace emu {

// ---- errors

inline std::string place(const void* address) {
    Dl_info info;
    char line[64], text[1024];
    size_t at = size_t(address);
    char exe[512];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n < 0) return "?";
    exe[n] = 0;
    if (dladdr(address, &info) && info.dli_fbase) {
        const Elf64_Ehdr* head = (const Elf64_Ehdr*)info.dli_fbase;
        if (head->e_type == ET_DYN) at -= size_t(info.dli_fbase);
        if (info.dli_fname && strchr(info.dli_fname, '/')) snprintf(exe, sizeof exe, "%s", info.dli_fname);
    }
    snprintf(line, sizeof line, "0x%zx", at - 1);
    std::string command = std::string("addr2line -e '") + exe + "' -f -i -s -p -C " + line + " 2>/dev/null", out;
    FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) return line;
    // Innermost first; the emulator's own and the lines above the kernel are of no interest.
    while (fgets(text, sizeof text, pipe)) {
        std::string one = text;
        while (!one.empty() && one[0] == ' ') one.erase(0, 1);
        if (one.rfind("(inlined by) ", 0) == 0) one = one.substr(13);
        while (!one.empty() && (one.back() == '\n' || one.back() == ' ')) one.pop_back();
        if (size_t d = one.find(" (discriminator"); d != std::string::npos) one.resize(d);
        if (one.find("emu.h:") != std::string::npos) continue;
        size_t arguments = one.find('(');
        size_t by = one.find(" at ");
        if (arguments != std::string::npos && by != std::string::npos && arguments < by) one = one.substr(0, arguments) + one.substr(by);
        out += out.empty() ? one : "\n        in " + one;
    }
    pclose(pipe);
    return out.empty() ? line : out;
}

inline void say_thread(FILE* to) {
    if (block.running && cur) {
        fprintf(to, "  kernel %s, block (%u, %u, %u), thread (%u, %u, %u) = warp %u lane %u\n", kernel_name, blockIdx.x, blockIdx.y,
                blockIdx.z, cur->tid.x, cur->tid.y, cur->tid.z, cur->warp, cur->lane);
    } else {
        fprintf(to, "  kernel %s, block (%u, %u, %u)\n", kernel_name, blockIdx.x, blockIdx.y, blockIdx.z);
    }
}

__attribute__((naked, noinline)) inline void switch_stacks(void**, void*) {
    asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}

#if defined(EMU_DEVICE)
struct Fault {};  // ends a launch, not the process
[[noreturn]] inline void leave() {
    fflush(stderr);
    if (!block.running) throw Fault();
    static void* nowhere;
    block.failed = true;
    switch_stacks(&nowhere, block.main_sp);
    __builtin_unreachable();
}
#else
[[noreturn]] inline void leave() {
    fflush(stderr);
    _exit(3);
}
#endif

[[noreturn]] EMU_NOINLINE void die(const char* message, const void* where) {
    fflush(stdout);
    fprintf(stderr, "EMU ERROR: %s\n", message);
    say_thread(stderr);
    if (where) fprintf(stderr, "  at %s\n", place(where).c_str());
    leave();
}
#define EMU_DIE(message) emu::die(message, __builtin_return_address(0))

inline void on_signal(int number, siginfo_t* info, void* context) {
    const ucontext_t* c = (const ucontext_t*)context;
    fflush(stdout);
    fprintf(stderr, "EMU ERROR: signal %d (%s), address %p\n", number, strsignal(number), info->si_addr);
    if (stacks && (u8*)info->si_addr >= stacks && (u8*)info->si_addr < stacks + STACK * MOST_THREADS) {
        fprintf(stderr, "  (in the fibers' stacks: a stack overflow?)\n");
    }
    say_thread(stderr);
    fprintf(stderr, "  at %s\n", place((const u8*)c->uc_mcontext.gregs[REG_RIP] + 1).c_str());
    fflush(stderr);
    _exit(4);
}

}  // namespace emu
#if defined(__SANITIZE_ADDRESS__)
extern "C" __attribute__((weak, used)) void __ubsan_on_report() {
    if (emu::block.running) fprintf(stderr, "EMU: that comes now:\n"), emu::say_thread(stderr);
}
#endif
namespace emu {

// ---- fibers

inline u32 random32() {
    random_state += 0x9e3779b97f4a7c15ull;
    u64 z = random_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return u32((z ^ (z >> 31)) >> 32);
}

inline u32 random_bit(u32 mask) {
    for (u32 skip = random32() % u32(__builtin_popcount(mask)); skip > 0; skip--) mask &= mask - 1;
    return u32(__builtin_ctz(mask));
}

// The bit after `at`, around.
inline u32 bit_after(u32 mask, u32 at) {
    const u32 above = mask & ~u32((2ull << at) - 1);
    return u32(__builtin_ctz(above ? above : mask));
}
inline u32 bit_before(u32 mask, u32 at) {
    const u32 below = mask & u32((1ull << at) - 1);
    return 31 - u32(__builtin_clz(below ? below : mask));
}

inline void wake(Warp& w, u32 lanes) {
    w.ready |= lanes;
    if (w.ready) block.ready_warps |= 1u << w.number;
}

inline Fiber* pick() {
    if (!block.ready_warps) return nullptr;
    u32 warp = cur->warp, lane;
    if (order == FORWARD) {
        u32 ready = block.warp[warp].ready;
        if (ready) {
            lane = bit_after(ready, cur->lane);
        } else {
            warp = bit_after(block.ready_warps, warp);
            lane = u32(__builtin_ctz(block.warp[warp].ready));
        }
    } else if (order == REVERSE) {
        u32 ready = block.warp[warp].ready;
        if (ready) {
            lane = bit_before(ready, cur->lane);
        } else {
            warp = bit_before(block.ready_warps, warp);
            lane = 31 - u32(__builtin_clz(block.warp[warp].ready));
        }
    } else {
        warp = random_bit(block.ready_warps);
        lane = random_bit(block.warp[warp].ready);
    }
    return &fibers[warp * 32 + lane];
}

inline void go(void** save, void** save_fake, Fiber* to) {
    switches++;
    cur = to;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(save_fake, stacks + (to - fibers) * STACK, STACK);
#endif
    switch_stacks(save, to->sp);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(save_fake ? *save_fake : nullptr, nullptr, nullptr);
#endif
    (void)save_fake;
}

[[noreturn]] EMU_NOINLINE void deadlock() {
    fflush(stdout);
    fprintf(stderr, "EMU ERROR: deadlock: no thread can go on\n");
    block.running = false;
    say_thread(stderr);
    std::map<std::tuple<std::string, u64, void*>, std::vector<u32>> groups;
    u32 exited = 0;
    for (u32 t = 0; t < block.threads; t++) {
        const Fiber& f = fibers[t];
        if (f.exited) exited++;
        else groups[{f.what, f.which, f.where}].push_back(t);
    }
    for (auto& [key, threads] : groups) {
        fprintf(stderr, "  %zu threads wait in %s (%s%llx):", threads.size(), std::get<0>(key).c_str(),
                std::get<0>(key)[0] == '_' && std::get<0>(key).find("syncthreads") == std::string::npos ? "mask " : "", std::get<1>(key));
        for (size_t i = 0, shown = 0; i < threads.size(); shown++) {
            size_t j = i;
            while (j + 1 < threads.size() && threads[j + 1] == threads[j] + 1) j++;
            if (shown == 12) {
                fprintf(stderr, " ...");
                break;
            }
            if (i == j) fprintf(stderr, " %u", threads[i]);
            else fprintf(stderr, " %u-%u", threads[i], threads[j]);
            i = j + 1;
        }
        fprintf(stderr, "\n      at %s\n", place(std::get<2>(key)).c_str());
    }
    if (exited) fprintf(stderr, "  %u threads have ended\n", exited);
    block.running = true;
    leave();
}

// This fiber is no longer ready; the next one goes on, until somebody wakes this one.
inline void sleep(const char* what, u64 which, void* where) {
    Fiber* const me = cur;
    Warp& w = block.warp[me->warp];
    me->what = what, me->which = which, me->where = where;
    w.ready &= ~(1u << me->lane);
    if (!w.ready) block.ready_warps &= ~(1u << me->warp);
    Fiber* const to = pick();
    if (!to) deadlock();
    go(&me->sp, &me->fake, to);
}

inline void close_group(Warp& w, u32 g) {
    const Group group = w.groups[g];
    w.groups[g] = w.groups[--w.groups_n];
    group.done(w, group.arrived);
    wake(w, group.arrived);
}

// All lanes of `mask` that have not exited meet here; the last one calls `done` for all.
inline void meet(u32 mask, Done done, const char* what, void* where) {
    Fiber* const me = cur;
    Warp& w = block.warp[me->warp];
    const u32 bit = 1u << me->lane;
    if (!(mask & bit)) {
        fprintf(stderr, "%s with mask %08x\n", what, mask);
        die("a lane calls a warp's function with a mask that lacks it", where);
    }
    u32 g = 0;
    while (g < w.groups_n && !(w.groups[g].mask == mask && w.groups[g].done == done)) g++;
    if (g == w.groups_n) w.groups[w.groups_n++] = {mask, 0, done};
    w.groups[g].arrived |= bit;
    if (w.groups[g].arrived == (mask & ~w.exited)) {
        close_group(w, g);
    } else {
        sleep(what, mask, where);
    }
}

inline void release(Barrier& b) {
    for (u32 i = 0; i < block.warps; i++) {
        if (b.waiting[i]) wake(block.warp[i], b.waiting[i]);
        b.waiting[i] = 0;
    }
    b.arrived = 0;
    b.result_count = b.votes;
    b.votes = 0;
}

inline void barrier(u32 number, u32 n, bool vote, bool waits, const char* what, void* where) {
    if (number >= 16) die("no such barrier", where);
    if (n % 32 != 0) die("a barrier's number of threads is no multiple of 32", where);
    Barrier& b = block.barrier[number];
    if (b.arrived > 0 && b.expected != n) die("threads meet at one barrier with different numbers of threads", where);
    b.expected = n;
    b.arrived++;
    b.votes += vote;
    const u32 full = n ? n : block.alive;
    if (b.arrived >= full) {
        release(b);
    } else if (waits) {
        b.waiting[cur->warp] |= 1u << cur->lane;
        sleep(what, number, where);
    }
}

[[noreturn]] inline void thread_end() {
    Fiber* const me = cur;
    Warp& w = block.warp[me->warp];
    me->exited = true;
    w.exited |= 1u << me->lane;
    w.ready &= ~(1u << me->lane);
    if (!w.ready) block.ready_warps &= ~(1u << me->warp);
    block.alive--;
    for (u32 g = 0; g < w.groups_n;) {
        if (w.groups[g].arrived == (w.groups[g].mask & ~w.exited)) close_group(w, g), g = 0;
        else g++;
    }
    for (Barrier& b : block.barrier) {
        if (b.arrived > 0 && b.expected == 0 && b.arrived >= block.alive) release(b);
    }
    if (block.alive == 0) {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(nullptr, block.main_bottom, block.main_size);
#endif
        switch_stacks(&me->sp, block.main_sp);
    }
    Fiber* const to = pick();
    if (!to) deadlock();
    go(&me->sp, nullptr, to);
    __builtin_unreachable();
}

inline void thread_begin() {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!block.main_bottom) block.main_bottom = bottom, block.main_size = size;
#endif
    block.call(block.argument);
    thread_end();
}

inline void begin_once() {
    if (stacks) return;
#if !defined(EMU_DEVICE)
    stacks = (u8*)mmap(nullptr, STACK * MOST_THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        perror("stacks");
        exit(3);
    }
    for (u32 t = 0; t < MOST_THREADS; t++) mprotect(stacks + t * STACK, 4096, PROT_NONE);
    static u8 alternative[65536];
    stack_t s = {};
    s.ss_sp = alternative, s.ss_size = sizeof alternative;
    sigaltstack(&s, nullptr);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback([] {
        if (block.running) fprintf(stderr, "EMU: that was\n"), say_thread(stderr);
    });
#else
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigaction(number, &action, nullptr);
#endif
#if !defined(__SANITIZE_ADDRESS__)
    for (int number : {SIGALRM, SIGINT}) sigaction(number, &action, nullptr);
#endif
    if (const char* text = getenv("EMU_LIMIT")) alarm(unsigned(atoi(text)));
#endif
    if (const char* text = getenv("EMU_ORDER")) {
        if (!strcmp(text, "forward")) order = FORWARD;
        else if (!strcmp(text, "reverse")) order = REVERSE;
        else if (!strncmp(text, "random", 6)) order = RANDOM, random_state = text[6] ? strtoull(text + 7, nullptr, 10) : 1;
        else {
            fprintf(stderr, "EMU_ORDER is forward, reverse or random:SEED\n");
            exit(3);
        }
    }
    if (const char* text = getenv("EMU_COPIES")) late = !strcmp(text, "late");
    stats = getenv("EMU_STATS") != nullptr;
}

inline void run_block() {
    const u32 threads = block.threads;
    block.warps = (threads + 31) / 32;
    block.alive = threads;
    block.ready_warps = 0;
    memset(block.barrier, 0, sizeof block.barrier);
    for (u32 i = 0; i < block.warps; i++) {
        Warp& w = block.warp[i];
        const u32 lanes = threads - i * 32 >= 32 ? 0xffffffffu : (1u << (threads - i * 32)) - 1;
        w.number = i, w.groups_n = 0, w.exited = ~lanes, w.ready = 0;
        wake(w, lanes);
    }
    for (u32 t = 0; t < threads; t++) {
        Fiber& f = fibers[t];
        f.tid = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
        f.lane = t % 32, f.warp = t / 32, f.exited = false, f.what = "start", f.fake = nullptr;
        // Stacks begin at different cache sets.
        void** top = (void**)(stacks + (t + 1) * STACK - 64 - (t % 61) * 64);
        *--top = nullptr;
        *--top = nullptr;
        *--top = nullptr;
        *--top = (void*)thread_begin;
        for (int i = 0; i < 6; i++) *--top = nullptr;
        f.sp = top;
        if (late) open_groups[t].clear(), open_copies[t].clear();
    }
    bulk_copies.clear();
    for (auto& [place, bytes] : static_shared()) memset(place, 0xcb, bytes);
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(shared_area, sizeof shared_area);
#endif
    memset(shared_area, 0xcb, block.shared);
    u8* const guard = shared_area + block.shared;
    memset(guard, 0xa5, GUARD);
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(guard, GUARD);
#endif
    block.running = true;
    cur = &fibers[0];
    Fiber* first = order == FORWARD ? &fibers[0] : order == REVERSE ? &fibers[threads - 1] : pick();
    go(&block.main_sp, &block.main_fake, first);
    block.running = false;
#if defined(EMU_DEVICE)
    if (block.failed) throw Fault();
#endif
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(shared_area, sizeof shared_area);
#endif
    if (guard[0] != 0xa5 || memcmp(guard, guard + 1, GUARD - 1)) {
        u32 i = 0;
        while (guard[i] == 0xa5) i++;
        fprintf(stderr, "byte %zu, %u behind the end of %zu bytes\n", block.shared + i, i, block.shared);
        die("a write behind the end of dynamic shared memory", nullptr);
    }
    for (u32 i = 0; i < 16; i++) {
        if (block.barrier[i].arrived) {
            fprintf(stderr, "EMU WARNING: barrier %u had %u arrivals when the block ended\n", i, block.barrier[i].arrived);
        }
    }
}

inline void run_grid(dim3 grid, dim3 threads, size_t shared, void (*call)(void*), void* argument, const void* kernel, const char* name) {
    begin_once();
    kernel_name = name;
    if (block.running) die("a launch from a kernel", nullptr);
    const size_t count = size_t(threads.x) * threads.y * threads.z;
    if (count == 0 || count > MOST_THREADS) die("a block has 1 to 1024 threads", nullptr);
    auto bound = bounds().find(kernel);
    if (bound != bounds().end() && count > bound->second) {
        fprintf(stderr, "%zu threads, __launch_bounds__(%u)\n", count, bound->second);
        die("more threads than the kernel's launch bounds", nullptr);
    }
    if (shared > MOST_SHARED) die("more than 227 KB of shared memory", nullptr);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535) die("no such grid", nullptr);
    block.threads = u32(count), block.shared = shared, block.call = call, block.argument = argument;
    gridDim = grid, blockDim = threads;
    const u64 switches_before = switches;
    const auto begun = std::chrono::steady_clock::now();
    // In the other orders blocks come in another order, too.
    const u64 blocks = u64(grid.x) * grid.y * grid.z;
    std::vector<u32> turn;
    if (order == RANDOM) {
        for (u64 i = 0; i < blocks; i++) turn.push_back(u32(i));
        for (u64 i = blocks; i > 1; i--) std::swap(turn[i - 1], turn[random32() % i]);
    }
    for (u64 i = 0; i < blocks; i++) {
        const u64 b = order == FORWARD ? i : order == REVERSE ? blocks - 1 - i : turn[i];
        blockIdx = dim3(u32(b % grid.x), u32(b / grid.x % grid.y), u32(b / grid.x / grid.y));
        run_block();
    }
    if (stats) {
        const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        fprintf(stderr, "emu: %s: %llu blocks of %zu, %zu bytes shared: %.1f ms, %llu switches\n", name, blocks, count, shared, s * 1e3,
                switches - switches_before);
    }
}

template <typename... P, typename... A>
void launch_named(const char* name, void (*kernel)(P...), dim3 grid, dim3 threads, size_t shared, A&&... arguments) {
    static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has");
    std::tuple<std::decay_t<P>...> held(std::forward<A>(arguments)...);
    auto call = [&] { std::apply(kernel, held); };
    typedef decltype(call) Call;
    run_grid(grid, threads, shared, [](void* c) { (*(Call*)c)(); }, &call, (const void*)kernel, name);
}
#define launch(KERNEL, ...) emu::launch_named(#KERNEL, KERNEL, __VA_ARGS__)

}  // namespace emu

#include "emu_device.h"
