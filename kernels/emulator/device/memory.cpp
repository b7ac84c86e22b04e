// Memory of the device: pages of their own each, so that what lies behind is not there; and which addresses are whose.
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "driver.h"

namespace {
enum Kind { DEVICE, PINNED, REGISTERED };
struct Range {
    size_t bytes;
    Kind kind;
    uint8_t* pages;      // what was mapped, one page without access behind it
    size_t mapped;
};
std::map<uint64_t, Range> ranges;  // by their beginnings
size_t taken;

constexpr size_t PAGE = 4096, ALIGNED = 512;
constexpr int FRESH = 0xcb, BEHIND = 0xa5;

// The range that holds an address.
const std::pair<const uint64_t, Range>* holder(uint64_t at) {
    auto next = ranges.upper_bound(at);
    if (next == ranges.begin()) return nullptr;
    const auto& range = *std::prev(next);
    return at - range.first < range.second.bytes ? &range : nullptr;
}

// It ends with its last page but for what aligns its beginning.
uint64_t map_range(size_t bytes, Kind kind) {
    const size_t rounded = (bytes + ALIGNED - 1) / ALIGNED * ALIGNED, pages = (rounded + PAGE - 1) / PAGE * PAGE;
    void* got = mmap(nullptr, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return 0;
    uint8_t* const base = (uint8_t*)got;
    mprotect(base + pages, PAGE, PROT_NONE);
    // Pinned memory is the host's, which may count on whole pages.
    uint8_t* const begin = kind == PINNED ? base : base + pages - rounded;
    memset(begin, FRESH, bytes);
    memset(begin + bytes, BEHIND, size_t(base + pages - begin) - bytes);
    ranges[uint64_t(begin)] = {bytes, kind, base, pages + PAGE};
    return uint64_t(begin);
}

CUresult unmap_range(const char* what, uint64_t at, Kind kind) {
    auto it = ranges.find(at);
    if (it == ranges.end() || it->second.kind != kind) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "%s: %#llx was not allocated so", what, (unsigned long long)at);
    }
    const Range range = it->second;
    for (const uint8_t* p = (uint8_t*)at + range.bytes; p < range.pages + range.mapped - PAGE; p++) {
        if (*p != BEHIND) {
            fprintf(stderr, "emulated device: byte %zu behind the end of %zu bytes at %#llx was written\n",
                    size_t(p - (uint8_t*)at) - range.bytes, range.bytes, (unsigned long long)at);
            context_dies(CUDA_ERROR_ILLEGAL_ADDRESS);
            break;
        }
    }
    munmap(range.pages, range.mapped);
    ranges.erase(it);
    if (kind == DEVICE) taken -= range.bytes;
    return context_state();
}
}  // namespace

bool reachable(const char* what, uint64_t at, size_t bytes) {
    const auto* range = holder(at);
    if (range && bytes <= range->second.bytes - (at - range->first)) return true;
    if (range) {
        refuse(CUDA_ERROR_INVALID_VALUE, "%s: %zu bytes at byte %llu of an allocation of %zu", what, bytes,
               (unsigned long long)(at - range->first), range->second.bytes);
    } else {
        refuse(CUDA_ERROR_INVALID_VALUE, "%s: nothing is allocated at %#llx", what, (unsigned long long)at);
    }
    return false;
}

bool is_hosts(const char* what, const void* at, size_t bytes) {
    const auto* range = holder(uint64_t(at));
    if (!range) return true;
    if (range->second.kind == DEVICE) {
        refuse(CUDA_ERROR_INVALID_VALUE, "%s: the host's address is one of the device's", what);
        return false;
    }
    return reachable(what, uint64_t(at), bytes);
}

bool is_pinned(const void* at, size_t bytes) {
    const auto* range = holder(uint64_t(at));
    return range && range->second.kind != DEVICE && bytes <= range->second.bytes - (uint64_t(at) - range->first);
}

CUDA_API cuMemGetInfo_v2(size_t* free, size_t* total) {
    BEGIN("cuMemGetInfo");
    *total = options().memory;
    *free = *total - taken;
    return CUDA_SUCCESS;
}

CUDA_API cuMemAlloc_v2(CUdeviceptr* at, size_t bytes) {
    BEGIN("cuMemAlloc", true);
    if (bytes == 0) return refuse(CUDA_ERROR_INVALID_VALUE, "cuMemAlloc: no bytes");
    if (bytes > options().memory - taken || !(*at = map_range(bytes, DEVICE))) return CUDA_ERROR_OUT_OF_MEMORY;
    taken += bytes;
    return CUDA_SUCCESS;
}

CUDA_API cuMemFree_v2(CUdeviceptr at) {
    BEGIN("cuMemFree", true);
    finish_all(call.lock);
    return unmap_range("cuMemFree", at, DEVICE);
}

CUDA_API cuMemHostAlloc(void** at, size_t bytes, unsigned) {
    BEGIN("cuMemHostAlloc", true);
    if (bytes == 0) return refuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostAlloc: no bytes");
    *at = (void*)map_range(bytes, PINNED);
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUDA_API cuMemFreeHost(void* at) {
    BEGIN("cuMemFreeHost", true);
    finish_all(call.lock);
    return unmap_range("cuMemFreeHost", uint64_t(at), PINNED);
}

CUDA_API cuMemHostRegister_v2(void* at, size_t bytes, unsigned) {
    BEGIN("cuMemHostRegister", true);
    const auto next = ranges.lower_bound(uint64_t(at));
    if (holder(uint64_t(at)) || (next != ranges.end() && next->first - uint64_t(at) < bytes)) {
        return refuse(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "cuMemHostRegister: some of these %zu bytes are known already", bytes);
    }
    if (bytes == 0) return refuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostRegister: no bytes");
    ranges[uint64_t(at)] = {bytes, REGISTERED, nullptr, 0};
    return CUDA_SUCCESS;
}

CUDA_API cuMemHostUnregister(void* at) {
    BEGIN("cuMemHostUnregister", true);
    finish_all(call.lock);
    auto it = ranges.find(uint64_t(at));
    if (it == ranges.end() || it->second.kind != REGISTERED) {
        return refuse(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostUnregister: %p is not registered", at);
    }
    ranges.erase(it);
    return CUDA_SUCCESS;
}

CUDA_API cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* at, unsigned) {
    BEGIN("cuMemHostGetDevicePointer");
    if (!is_pinned(at, 1)) return refuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostGetDevicePointer: %p is not the device's to reach", at);
    *device = uint64_t(at);
    return CUDA_SUCCESS;
}
