// Code, its entries, and launches.
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "driver.h"

namespace {
constexpr size_t MOST_WITHOUT_OPT_IN = 48 << 10;
std::vector<Function*> functions;

// A copy of the library for a worker: a file of its own, so that the loader does not take it for one that it has.
void* open_copy(const void* image, size_t bytes) {
    const int file = memfd_create("emulated unit", MFD_CLOEXEC);
    if (file < 0) return nullptr;
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = write(file, (const char*)image + at, bytes - at);
        if (n <= 0) return close(file), nullptr;
        at += size_t(n);
    }
    // Named so that another process can read it, too: faults are told with lines, which addr2line knows. It stays open.
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", int(getpid()), file);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}
}  // namespace

CUDA_API cuModuleLoadData(CUmodule* handle, const void* image) {
    BEGIN("cuModuleLoadData");
    const Elf64_Ehdr* const head = (const Elf64_Ehdr*)image;
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_machine != EM_X86_64 || head->e_type != ET_DYN) {
        return refuse(CUDA_ERROR_INVALID_IMAGE, "this is no code of the emulated NVRTC (MAYA_KERNELS=nvrtc keeps a GPU's away)");
    }
    const size_t bytes = head->e_shoff + size_t(head->e_shnum) * head->e_shentsize;
    auto module = std::make_unique<Module>();
    for (unsigned i = 0; i < options().workers; i++) {
        void* const library = open_copy(image, bytes);
        const auto unit = library ? (const device::Unit* (*)())dlsym(library, "emu_unit") : nullptr;
        if (!unit) {
            const char* why = dlerror();
            return refuse(CUDA_ERROR_INVALID_IMAGE, "a unit cannot be loaded: %s", why ? why : "no file");
        }
        module->libraries.push_back(library);
        module->units.push_back(unit());
    }
    const device::Unit& unit = *module->units[0];
    if (unit.version != device::UNIT_VERSION) return refuse(CUDA_ERROR_INVALID_IMAGE, "a unit of another version of the emulator");
    if (unit.arch != options().arch * 10) {
        return refuse(CUDA_ERROR_NO_BINARY_FOR_GPU, "a unit for sm_%u on sm_%u", unit.arch / 10, options().arch);
    }
    for (size_t i = 0; i < unit.n_entries; i++) {
        module->functions.push_back(
            std::make_unique<Function>(Function{module.get(), uint32_t(i), &unit.entries[i], MOST_WITHOUT_OPT_IN - unit.static_shared}));
        functions.push_back(module->functions.back().get());
    }
    *handle = module.release();
    return CUDA_SUCCESS;
}

CUDA_API cuModuleUnload(CUmodule module) {
    BEGIN("cuModuleUnload", true);
    finish_all(call.lock);
    for (const auto& f : module->functions) functions.erase(std::find(functions.begin(), functions.end(), f.get()));
    // The libraries stay: their emulators' stacks are nothing that unloading gives back.
    delete module;
    return context_state();
}

CUDA_API cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    BEGIN("cuModuleGetFunction");
    for (const auto& f : module->functions) {
        if (!strcmp(f->entry->name, name)) {
            *function = f.get();
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUDA_API cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule, const char*) {
    BEGIN("cuModuleGetGlobal");
    // Units show their entries only; no kernel has a variable that the host looks up.
    return CUDA_ERROR_NOT_FOUND;
}

CUDA_API cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
    BEGIN("cuFuncGetAttribute");
    switch (which) {
        case FUNCTION_MAX_THREADS_PER_BLOCK: *value = int(function->entry->most_threads); break;
        case FUNCTION_SHARED_SIZE_BYTES: *value = int(function->module->units[0]->static_shared); break;
        case FUNCTION_LOCAL_SIZE_BYTES: *value = 0; break;
        case FUNCTION_NUM_REGS: *value = 32; break;  // there are none; this says that nobody needs too many
        case FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = int(function->most_dynamic); break;
        default: return refuse(CUDA_ERROR_INVALID_VALUE, "cuFuncGetAttribute: attribute %d is not emulated", int(which));
    }
    return CUDA_SUCCESS;
}

CUDA_API cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    BEGIN("cuFuncSetAttribute");
    if (which != FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "cuFuncSetAttribute: attribute %d is not emulated", int(which));
    }
    if (value < 0 || size_t(value) > most_shared() - function->module->units[0]->static_shared) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %d bytes of shared memory, and a block has %u", function->entry->name, value, most_shared());
    }
    function->most_dynamic = size_t(value);
    return CUDA_SUCCESS;
}

CUDA_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads, size_t shared) {
    BEGIN("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    if (threads < 1 || unsigned(threads) > function->entry->most_threads) {
        *blocks = 0;
        return CUDA_SUCCESS;
    }
    // As a multiprocessor with 2048 threads, and 1 KB of shared memory for the system for each block.
    const size_t by_threads = 2048 / ((size_t(threads) + 31) / 32 * 32), by_shared = (most_shared() + 1024) / (shared + 1024);
    *blocks = int(std::min({by_threads, by_shared, size_t(32)}));
    return CUDA_SUCCESS;
}

static CUresult launch(const char* what, CUfunction function, const unsigned (&grid)[3], const unsigned (&block)[3], size_t shared,
                       CUstream stream, void** places, void** extra) {
    if (std::find(functions.begin(), functions.end(), function) == functions.end()) {
        return refuse(CUDA_ERROR_INVALID_HANDLE, "%s: there is no such kernel", what);
    }
    const device::Entry& entry = *function->entry;
    if (extra) return refuse(CUDA_ERROR_NOT_SUPPORTED, "%s: parameters as one buffer are not emulated", what);
    const uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535 || !threads || block[2] > 64) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %u x %u x %u blocks of %u x %u x %u threads", entry.name, grid[0], grid[1], grid[2],
                      block[0], block[1], block[2]);
    }
    if (threads > entry.most_threads) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %llu threads of a block, and its launch bounds allow %u", entry.name,
                      (unsigned long long)threads, entry.most_threads);
    }
    if (shared > function->most_dynamic) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %zu bytes of shared memory, and it may have %zu", entry.name, shared, function->most_dynamic);
    }
    Launch launch = {function, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, {}};
    for (uint32_t i = 0; i < entry.n_parameters; i++) {
        if (!places[i]) return refuse(CUDA_ERROR_INVALID_VALUE, "%s: it has %u parameters, and got %u", entry.name, entry.n_parameters, i);
        auto& value = launch.values.emplace_back((entry.sizes[i] + 7) / 8);
        memcpy(value.data(), places[i], entry.sizes[i]);
    }
    return enqueue(stream, {entry.name, nullptr, [launch = std::make_shared<Launch>(std::move(launch))] { return run_launch(*launch); }});
}

CUDA_API cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        CUstream stream, void** places, void** extra) {
    BEGIN("cuLaunchKernel");
    return launch("cuLaunchKernel", function, {gx, gy, gz}, {bx, by, bz}, shared, stream, places, extra);
}

CUDA_API cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction function, void** places, void** extra) {
    BEGIN("cuLaunchKernelEx");
    return launch("cuLaunchKernelEx", function, {c->gridDimX, c->gridDimY, c->gridDimZ}, {c->blockDimX, c->blockDimY, c->blockDimZ},
                  c->sharedMemBytes, c->hStream, places, extra);
}
