// The smallest unit: shows that compiler, pack, driver and launch work, and that a product is not fused into a sum.
#include "half.cuh"
#include "launch.cuh"

// y = a * x + y with two roundings, and the sum again as half in h.
extern "C" __global__ void probe_axpy(float a, const float* x, float* y, half_bits* h, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float sum = a * x[i] + y[i];
        y[i] = sum;
        h[i] = float_to_half(sum);
    }
}

// The way back: x = h as f32.
extern "C" __global__ void probe_widen(const half_bits* h, float* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    wait_for_previous();
    if (i < n) x[i] = half_to_float(h[i]);
}
