// What a new row of each sequence adds to its state of latent attention (model-spec 4.1 to 4.3): the normed query input, its latents,
// its index key and gate, and the pooled key if it completes a pool. Rows of products are `width` values apart.
#include "indexer.cuh"
#include "sinkhorn.cuh"
#include "turn.cuh"

// Three blocks a row, each for one of the three; they share nothing. A fourth finishes the gates of the site before. Shared memory: floats, a block of 256 of the longer of rank and
// latent each, or the index dim.
extern "C" __global__ void __launch_bounds__(256, 1)
    dsa_prepare(const float* q_a, const float* kv_a, const float* keys, const float* gates, const float* q_norm,
                const float* kv_norm, const float* k_norm, const float* k_bias, const float* ape, const Turn* turns, float* low,
                u8* latents, float* open_keys, float* open_gates, float* pooled, u32 width, u32 rank, u32 latent, u32 dim, u32 kpool,
                u32 half, float rms_eps, float ln_eps, float* site_gates, u32 sinkhorn, float hc_eps) {
    let_successor_begin();
    if (blockIdx.x == 3) return finish_gates(of_row(site_gates, 20), sinkhorn, hc_eps);
    wait_for_predecessor();
    const Turn turn = turn_of(turns);
    const u32 tid = threadIdx.x, at = turn.position;
    q_a = of_row(q_a, width), kv_a = of_row(kv_a, width), keys = of_row(keys, width), gates = of_row(gates, width);
    low = of_row(low, rank);
    latents = in_slot(latents, turn), pooled = in_slot(pooled, turn);
    open_keys = in_slot(open_keys, turn), open_gates = in_slot(open_gates, turn);
    if (blockIdx.x == 0) {
        const float factor = rms_factor(q_a, rank, rms_eps, 0);
        for (u32 i = tid; i < rank; i += blockDim.x) low[i] = (q_a[i] * factor) * q_norm[i];
    } else if (blockIdx.x == 1) {
        const float factor = rms_factor(kv_a, latent, rms_eps, 0);
        for (u32 i = tid; i < latent; i += blockDim.x) {
            const float value = (kv_a[i] * factor) * kv_norm[i];
            const size_t to = size_t(at) * latent + i;
            if (half) {
                reinterpret_cast<u16*>(latents)[to] = nearest_half(value);
            } else {
                reinterpret_cast<float*>(latents)[to] = value;
            }
        }
    } else {
        for (u32 i = tid; i < dim; i += blockDim.x) shared_at<float>(i * 4) = keys[i];
        __syncthreads();
        const float mean = sum_in_order(0, dim) / float(dim);
        __syncthreads();
        for (u32 i = tid; i < dim; i += blockDim.x) {
            const float x = keys[i];
            shared_at<float>(i * 4) = (x - mean) * (x - mean);
        }
        __syncthreads();
        const float variance = sum_in_order(0, dim) / float(dim);
        const float factor = 1.0f / sqrtf(variance + ln_eps);
        const u32 member = at % kpool;
        for (u32 c = tid; c < dim; c += blockDim.x) {
            open_keys[member * dim + c] = (keys[c] - mean) * factor * k_norm[c] + k_bias[c];
            open_gates[member * dim + c] = gates[c];
            if (member + 1 != kpool) continue;
            float largest = bits(0xff800000u);
            for (u32 j = 0; j < kpool; j++) largest = fmaxf(largest, open_gates[j * dim + c] + ape[j * dim + c]);
            float sum = 0.0f, out = 0.0f;
            for (u32 j = 0; j < kpool; j++) {
                const float weight = canon_exp((open_gates[j * dim + c] + ape[j * dim + c]) - largest);
                sum = sum + weight;
                out = out + weight * open_keys[j * dim + c];
            }
            pooled[size_t(at / kpool) * dim + c] = out / sum;
        }
    }
}
