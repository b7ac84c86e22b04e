// The one device, its context, and the names of errors.
#include <cstdio>
#include <cstring>

#include "driver.h"

struct Context {};
static Context the_context;
static std::mutex the_lock;
static bool started;
static CUresult dead = CUDA_SUCCESS;
static thread_local CUcontext current;

void context_dies(CUresult why) {
    if (!dead) dead = why;
}
CUresult context_state() { return dead; }

Call::Call(const char* name, bool unsafe) : refused(CUDA_SUCCESS), lock(the_lock) {
    if (!started) {
        refused = refuse(CUDA_ERROR_NOT_INITIALIZED, "%s before cuInit", name);
    } else if (!current) {
        refused = refuse(CUDA_ERROR_INVALID_CONTEXT, "%s on a thread without a context", name);
    } else if (dead) {
        refused = dead;
    } else if (unsafe && this_thread_captures()) {
        refused = refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s while this thread records a graph", name);
    }
}

CUDA_API cuInit(unsigned flags) {
    std::lock_guard<std::mutex> guard(the_lock);
    if (flags) return refuse(CUDA_ERROR_INVALID_VALUE, "cuInit has no flags");
    options();
    if (!started) start_workers();
    started = true;
    return CUDA_SUCCESS;
}

CUDA_API cuDriverGetVersion(int* version) {
    *version = 12090;
    return CUDA_SUCCESS;
}

static CUresult check(const char* name, CUdevice device) {
    if (!started) return refuse(CUDA_ERROR_NOT_INITIALIZED, "%s before cuInit", name);
    if (device != 0) return refuse(CUDA_ERROR_INVALID_DEVICE, "%s: there is device 0 only", name);
    return CUDA_SUCCESS;
}

CUDA_API cuDeviceGetCount(int* count) {
    *count = 1;
    return check("cuDeviceGetCount", 0);
}

CUDA_API cuDeviceGet(CUdevice* device, int ordinal) {
    *device = 0;
    return check("cuDeviceGet", ordinal);
}

CUDA_API cuDeviceGetName(char* name, int length, CUdevice device) {
    snprintf(name, size_t(length), "emulated device (sm_%u)", options().arch);
    return check("cuDeviceGetName", device);
}

CUDA_API cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
    snprintf(id, size_t(length), "0000:00:00.0");
    return check("cuDeviceGetPCIBusId", device);
}

CUDA_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    *bytes = options().memory;
    return check("cuDeviceTotalMem", device);
}

CUDA_API cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
    if (CUresult bad = check("cuDeviceGetAttribute", device)) return bad;
    switch (which) {
        case ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
        case ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
        case ATTRIBUTE_WARP_SIZE: *value = 32; break;
        case ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = int(options().processors); break;
        case ATTRIBUTE_L2_CACHE_SIZE: *value = 32 << 20; break;
        case ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = int(options().arch / 10); break;
        case ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = int(options().arch % 10); break;
        case ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = int(most_shared()); break;
        default: return refuse(CUDA_ERROR_INVALID_VALUE, "cuDeviceGetAttribute: attribute %d is not emulated", int(which));
    }
    return CUDA_SUCCESS;
}

CUDA_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    if (CUresult bad = check("cuDevicePrimaryCtxRetain", device)) return bad;
    std::lock_guard<std::mutex> guard(the_lock);
    *context = &the_context;
    return dead;
}

CUDA_API cuDevicePrimaryCtxRelease_v2(CUdevice device) { return check("cuDevicePrimaryCtxRelease", device); }

CUDA_API cuCtxSetCurrent(CUcontext context) {
    if (context && context != &the_context) return refuse(CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent: not this device's context");
    current = context;
    std::lock_guard<std::mutex> guard(the_lock);
    return dead;
}

CUDA_API cuCtxSynchronize() {
    BEGIN("cuCtxSynchronize", true);
    finish_all(call.lock);
    return dead;
}

CUDA_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    BEGIN("cuCtxGetStreamPriorityRange");
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

#define NAME(e) \
    case e: *text = #e; break
CUDA_API cuGetErrorName(CUresult error, const char** text) {
    switch (error) {
        NAME(CUDA_SUCCESS);
        NAME(CUDA_ERROR_INVALID_VALUE);
        NAME(CUDA_ERROR_OUT_OF_MEMORY);
        NAME(CUDA_ERROR_NOT_INITIALIZED);
        NAME(CUDA_ERROR_INVALID_DEVICE);
        NAME(CUDA_ERROR_INVALID_IMAGE);
        NAME(CUDA_ERROR_INVALID_CONTEXT);
        NAME(CUDA_ERROR_NO_BINARY_FOR_GPU);
        NAME(CUDA_ERROR_INVALID_HANDLE);
        NAME(CUDA_ERROR_NOT_FOUND);
        NAME(CUDA_ERROR_NOT_READY);
        NAME(CUDA_ERROR_ILLEGAL_ADDRESS);
        NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        NAME(CUDA_ERROR_LAUNCH_FAILED);
        NAME(CUDA_ERROR_NOT_SUPPORTED);
        NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        NAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        NAME(CUDA_ERROR_CAPTURED_EVENT);
        default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
