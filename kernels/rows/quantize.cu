// Vectors rounded to bytes for products with many vectors (docs/ARITHMETIC.md, "Activations"), in the order of tile.cuh.
#include "activation.cuh"
#include "canon.cuh"

struct Quantize {
    const float* x;   // vector v of row r begins at r * stride + v * k
    const float* x2;  // where not null: up, x being the gate, and the vector is their SwiGLU
    u8* q;            // [rows * parts][pitch]
    float* scale;     // [rows * parts][scales]
    u32* faults;      // of the launch's rows; what is not finite leaves 1 where 0 was
    u64 stride;
    u32 rows, parts, k, pitch, scales;
    u32 share;        // rows that have one place in `faults`
    u32 narrow;       // blocks of 32 values, not of 256
    float limit;
    u8* q2;           // with a second z of the grid: where these and their scales go in blocks of 32, too
    float* scale2;
    u32 apart;        // as of products.cuh
    u32 reserved;
};


// A warp has 256 values of a vector, blockIdx.y of them; a lane eight.
DEV void round_vector(Quantize& p, u32 vector) {
    if (vector >= p.rows * p.parts) return;
    if (blockIdx.z > 0) p.q = p.q2, p.scale = p.scale2, p.narrow = 1;
    const u32 lane = threadIdx.x % WARP, i = blockIdx.y * 256 + 8 * lane, row = vector / p.parts;
    const size_t at = size_t(row) * p.stride + size_t(vector % p.parts) * p.k + i;
    float x[8] = {};
#pragma unroll
    for (u32 c = 0; c < 8; c++) {
        if (i + c < p.k) x[c] = p.x2 ? swiglu(p.x[at + c], p.x2[at + c], p.limit) : p.x[at + c];
    }
    const u32 lanes = p.narrow ? 4 : WARP;
    float scale;
    uint2 bytes;
    if (!round_eight(x, lanes, bytes, scale) && p.faults[row / p.share] == 0) p.faults[row / p.share] = 1;
    if (i >= p.k) return;
    // Words 2m and 2m + 1 of the chunk's sixteen.
    const u32 m = lane % 8, group = m / 2, word = m % 2 * 2;
    u8* to = p.q + size_t(vector) * p.pitch + blockIdx.y * 256 + lane / 8 * 64 + group * 4;
    *reinterpret_cast<u32*>(to + word * 16) = bytes.x;
    *reinterpret_cast<u32*>(to + word * 16 + 16) = bytes.y;
    if (lane % lanes == 0) p.scale[size_t(vector) * p.scales + i / (8 * lanes)] = scale;
}

extern "C" __global__ void __launch_bounds__(256) rows_quantize(Quantize p) {
    if (!p.apart) wait_for_predecessor();
    let_successor_begin();
    round_vector(p, blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP);
    // Whoever waits for this kernel's end relies on the end of all before it.
    if (p.apart) wait_for_predecessor();
}
