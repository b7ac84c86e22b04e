// The smallest unit: shows that compiler, pack, driver and launch work, and that a product is not fused into a sum.
#include "base.cuh"

// y = a * x + y with two roundings, and the sum again as half in h.
extern "C" __global__ void probe_axpy(float a, const float* x, float* y, u16* h, u32 n) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float sum = a * x[i] + y[i];
        y[i] = sum;
        h[i] = nearest_half(sum);
    }
}

// The way back: x = h as f32.
extern "C" __global__ void probe_widen(const u16* h, float* x, u32 n) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    wait_for_predecessor();
    if (i < n) x[i] = half_value(h[i]);
}
