// What new rows add to the state of latent attention (model-spec 4.1 to 4.3): normed query inputs, latents, index keys and gates,
// then the pooled keys that they complete. Row r is at position first + r.
#include "indexer.cuh"

// Three blocks a row (blockIdx.y), as for one row; keys and gates go to the rows' buffer, [row][keys, gates]. Rows of the inputs
// are `width` values apart. Shared memory: floats, a block of 256 of the longer of rank and latent each, or the index dim.
extern "C" __global__ void __launch_bounds__(256, 1)
    dsa_rows_prepare(const float* q_a, const float* kv_a, const float* keys, const float* gates, const float* q_norm,
                     const float* kv_norm, const float* k_norm, const float* k_bias, float* low, u8* latents, float* index_rows,
                     u32 width, u32 first, u32 rank, u32 latent, u32 dim, u32 half, float rms_eps, float ln_eps) {
    const u32 tid = threadIdx.x, row = blockIdx.x;
    if (blockIdx.y == 0) {
        const float* x = q_a + size_t(row) * width;
        const float factor = rms_factor(x, rank, rms_eps, 0);
        for (u32 i = tid; i < rank; i += blockDim.x) low[size_t(row) * rank + i] = (x[i] * factor) * q_norm[i];
    } else if (blockIdx.y == 1) {
        const float* x = kv_a + size_t(row) * width;
        const float factor = rms_factor(x, latent, rms_eps, 0);
        for (u32 i = tid; i < latent; i += blockDim.x) {
            const float value = (x[i] * factor) * kv_norm[i];
            const size_t to = (size_t(first) + row) * latent + i;
            if (half) {
                reinterpret_cast<u16*>(latents)[to] = nearest_half(value);
            } else {
                reinterpret_cast<float*>(latents)[to] = value;
            }
        }
    } else {
        const float* x = keys + size_t(row) * width;
        const float* gate = gates + size_t(row) * width;
        for (u32 i = tid; i < dim; i += blockDim.x) shared_at<float>(i * 4) = x[i];
        __syncthreads();
        const float mean = sum_in_order(0, dim) / float(dim);
        __syncthreads();
        for (u32 i = tid; i < dim; i += blockDim.x) shared_at<float>(i * 4) = (x[i] - mean) * (x[i] - mean);
        __syncthreads();
        const float variance = sum_in_order(0, dim) / float(dim);
        const float factor = 1.0f / sqrtf(variance + ln_eps);
        float* to = index_rows + size_t(row) * 2 * dim;
        for (u32 c = tid; c < dim; c += blockDim.x) {
            to[c] = (x[c] - mean) * factor * k_norm[c] + k_bias[c];
            to[dim + c] = gate[c];
        }
    }
}

// The pools that n rows complete, a block each from pool first / kpool on, and the open members of the next token: there is at least
// one block. Members before the first row are those of the sequence, which only block 0 reads, and writes when it has: a thread has
// its channels to itself.
extern "C" __global__ void __launch_bounds__(128, 1)
    dsa_rows_pool(const float* index_rows, const float* ape, float* open_keys, float* open_gates, float* pooled, u32 first, u32 n,
                  u32 dim, u32 kpool) {
    const u32 at = first / kpool + blockIdx.x, begin = at * kpool, end = first + n;
    for (u32 c = threadIdx.x; c < dim; c += blockDim.x) {
        auto key = [&](u32 j) {
            return begin + j < first ? open_keys[size_t(j) * dim + c] : index_rows[size_t(begin + j - first) * 2 * dim + c];
        };
        auto gate = [&](u32 j) {
            const float own =
                begin + j < first ? open_gates[size_t(j) * dim + c] : index_rows[size_t(begin + j - first) * 2 * dim + dim + c];
            return own + ape[size_t(j) * dim + c];
        };
        if (begin + kpool <= end) {
            float largest = bits(0xff800000u);
            for (u32 j = 0; j < kpool; j++) largest = fmaxf(largest, gate(j));
            float sum = 0.0f, out = 0.0f;
            for (u32 j = 0; j < kpool; j++) {
                const float weight = canon_exp(gate(j) - largest);
                sum = sum + weight;
                out = out + weight * key(j);
            }
            pooled[size_t(at) * dim + c] = out / sum;
        }
        if (blockIdx.x != 0) continue;
        // Each member's place holds the last position that had it; a place that no row had stays.
        for (u32 j = 0; j < min(kpool, n); j++) {
            const u32 row = n - 1 - j, member = (first + row) % kpool;
            open_keys[size_t(member) * dim + c] = index_rows[size_t(row) * 2 * dim + c];
            open_gates[size_t(member) * dim + c] = index_rows[size_t(row) * 2 * dim + dim + c];
        }
    }
}
