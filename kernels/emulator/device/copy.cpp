// Copies and fills. Ranges are looked at when the call is made, as the driver does.
#include <cstring>

#include "driver.h"

namespace {
CUresult copy(const char* what, CUstream stream, void* to, const void* from, size_t bytes) {
    return enqueue(stream, {what, nullptr, [=] {
                                memcpy(to, from, bytes);
                                return CUDA_SUCCESS;
                            }});
}

CUresult copy_and_wait(const char* what, void* to, const void* from, size_t bytes) {
    CUresult bad = copy(what, nullptr, to, from, bytes);
    run_streams();
    return bad ? bad : context_state();
}
}  // namespace

CUDA_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    BEGIN("cuMemcpyHtoD", true);
    if (!reachable("cuMemcpyHtoD", to, bytes) || !is_hosts("cuMemcpyHtoD", from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return copy_and_wait("cuMemcpyHtoD", (void*)to, from, bytes);
}

CUDA_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    BEGIN("cuMemcpyDtoH", true);
    if (!reachable("cuMemcpyDtoH", from, bytes) || !is_hosts("cuMemcpyDtoH", to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return copy_and_wait("cuMemcpyDtoH", to, (const void*)from, bytes);
}

CUDA_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    BEGIN("cuMemcpyHtoDAsync");
    if (!reachable("cuMemcpyHtoDAsync", to, bytes) || !is_hosts("cuMemcpyHtoDAsync", from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (is_pinned(from, bytes)) return copy("cuMemcpyHtoDAsync", stream, (void*)to, from, bytes);
    // Memory that the device cannot reach is read before the call returns.
    const auto staged = std::make_shared<std::vector<uint8_t>>((const uint8_t*)from, (const uint8_t*)from + bytes);
    return enqueue(stream, {"cuMemcpyHtoDAsync", nullptr, [=] {
                                memcpy((void*)to, staged->data(), bytes);
                                return CUDA_SUCCESS;
                            }});
}

CUDA_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    BEGIN("cuMemcpyDtoHAsync");
    if (!reachable("cuMemcpyDtoHAsync", from, bytes) || !is_hosts("cuMemcpyDtoHAsync", to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return copy("cuMemcpyDtoHAsync", stream, to, (const void*)from, bytes);
}

CUDA_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    BEGIN("cuMemcpyDtoDAsync");
    if (!reachable("cuMemcpyDtoDAsync", to, bytes) || !reachable("cuMemcpyDtoDAsync", from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return copy("cuMemcpyDtoDAsync", stream, (void*)to, (const void*)from, bytes);
}

static CUresult fill(const char* what, CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
    if (!reachable(what, at, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, {what, nullptr, [=] {
                                memset((void*)at, value, bytes);
                                return CUDA_SUCCESS;
                            }});
}

CUDA_API cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t bytes) {
    BEGIN("cuMemsetD8", true);
    return fill("cuMemsetD8", at, value, bytes, nullptr);
}

CUDA_API cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
    BEGIN("cuMemsetD8Async");
    return fill("cuMemsetD8Async", at, value, bytes, stream);
}
