// As much of CUDA's driver interface (12.0) as the emulated device has: types, numbers, and the functions' C names.
#pragma once
#include <cstddef>
#include <cstdint>

typedef int CUdevice;
typedef uint64_t CUdeviceptr;

enum CUresult : int {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907,
};

enum CUdevice_attribute : int {
    ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    ATTRIBUTE_WARP_SIZE = 10,
    ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    ATTRIBUTE_L2_CACHE_SIZE = 38,
    ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum CUfunction_attribute : int {
    FUNCTION_MAX_THREADS_PER_BLOCK = 0,
    FUNCTION_SHARED_SIZE_BYTES = 1,
    FUNCTION_LOCAL_SIZE_BYTES = 3,
    FUNCTION_NUM_REGS = 4,
    FUNCTION_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};

struct Context;
struct Module;
struct Function;
struct Stream;
struct Event;
struct Graph;
struct GraphExec;
typedef Context* CUcontext;
typedef Module* CUmodule;
typedef Function* CUfunction;
typedef Stream* CUstream;
typedef Event* CUevent;
typedef Graph* CUgraph;
typedef GraphExec* CUgraphExec;

struct CUlaunchConfig {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void* attrs;  // of programmatic launches, which change no result
    unsigned numAttrs;
};

#define CUDA_API extern "C" __attribute__((visibility("default"))) CUresult
