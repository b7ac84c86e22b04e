// The head of a unit for the emulated device (emu.py --device): the emulator, the entries' list, and how a worker runs its share.
// Every worker loads a copy of the unit's library, so all of the emulator's state is a worker's own.
#pragma once
#define EMU_DEVICE 1
#include "emu.h"
#include "unit_abi.h"

namespace emu {
inline u32 unit_arch;  // __CUDA_ARCH__, which emu.py sets

inline std::vector<device::Entry>& entries() {
    static std::vector<device::Entry> all;
    return all;
}

// Made static by emu.py, one for each __global__ function: knows its parameters' types.
struct Entry {
    template <typename... P>
    Entry(const char* name, void (*kernel)(P...), u32 threads) {
        static const u32 sizes[] = {u32(sizeof(std::decay_t<P>))..., 0};
        static_assert((std::is_trivially_copyable_v<std::decay_t<P>> && ...), "parameters are copied as bytes");
        entries().push_back({name, threads, sizeof...(P), sizes});
        kernels().push_back({(void (*)())kernel, unpack<P...>});
    }

    struct Kernel {
        void (*kernel)();
        void (*unpack)(void (*)(), void**);
    };
    static std::vector<Kernel>& kernels() {
        static std::vector<Kernel> all;
        return all;
    }

    template <typename... P>
    static void unpack(void (*kernel)(), void** places) {
        unpack_each<P...>((void (*)(P...))kernel, places, std::index_sequence_for<P...>());
    }
    template <typename... P, size_t... I>
    static void unpack_each(void (*kernel)(P...), void** places, std::index_sequence<I...>) {
        kernel(*(std::decay_t<P>*)places[I]...);
    }
};

struct Signal {
    int number;
    const void *address, *code;
};
inline Signal signal_got;

[[noreturn]] inline void device_fault(int number, const void* address, const void* code) {
    signal_got = {number, address, code};
    static void* nowhere;
    block.failed = true;
    // The handler's stack is left behind, which the kernel allows: the signal is not blocked (SA_NODEFER).
    switch_stacks(&nowhere, block.main_sp);
    __builtin_unreachable();
}

inline void tell_signal() {
    const auto [number, address, code] = signal_got;
    fprintf(stderr, "EMU ERROR: signal %d (%s), address %p\n", number, strsignal(number), address);
    if ((u8*)address >= stacks && (u8*)address < stacks + STACK * MOST_THREADS) {
        fprintf(stderr, "  (in the fibers' stacks: a stack overflow?)\n");
    }
    block.running = true;
    say_thread(stderr);
    block.running = false;
    fprintf(stderr, "  at %s\n", place((const u8*)code + 1).c_str());
    fflush(stderr);
}

static_assert(STACK == device::STACK && MOST_THREADS == device::MOST_THREADS, "as the workers map them");

inline bool run_share(const device::Share& share, u8* own_stacks) {
    begin_once();
    stacks = own_stacks;
    struct Call {
        const Entry::Kernel* kernel;
        void** places;
    } call = {&Entry::kernels()[share.entry], share.places};
    kernel_name = entries()[share.entry].name;
    block.threads = share.block[0] * share.block[1] * share.block[2];
    block.shared = share.shared;
    block.call = [](void* c) { ((Call*)c)->kernel->unpack(((Call*)c)->kernel->kernel, ((Call*)c)->places); };
    block.argument = &call;
    block.failed = block.running = false;
    signal_got.number = 0;
    gridDim = dim3(share.grid[0], share.grid[1], share.grid[2]);
    blockDim = dim3(share.block[0], share.block[1], share.block[2]);
    try {
        for (u64 i; (i = share.next->fetch_add(1)) < share.blocks;) {
            const u64 b = share.turn ? share.turn[i] : i;
            blockIdx = dim3(u32(b % gridDim.x), u32(b / gridDim.x % gridDim.y), u32(b / gridDim.x / gridDim.y));
            run_block();
        }
        return true;
    } catch (const Fault&) {
        if (signal_got.number) tell_signal();
        share.next->store(share.blocks);
        return false;
    }
}
}  // namespace emu

extern "C" __attribute__((visibility("default"), used)) inline const device::Unit* emu_unit() {
    static const device::Unit unit = [] {
        size_t bytes = 0;
        for (auto& [place, n] : emu::static_shared()) bytes += n;
        return device::Unit{device::UNIT_VERSION, emu::unit_arch, bytes, emu::entries().data(), emu::entries().size(),
                            emu::run_share, emu::device_fault};
    }();
    return &unit;
}
