// What a step begins with: its token, which the step before may have left here, the token's embedding in every stream, and how
// the step draws; for each sequence of a pass.
#include "row.cuh"
#include "sampler.cuh"
#include "turn.cuh"

struct Begin {
    const u8* embeddings;  // [vocab][row_bytes]; null: the host has put the row at `streams`
    const u32* last;       // the token that was sampled last; null: `token` is fed
    float* streams;        // [n][hidden]
    Turn* turn;
    u32* history;          // [ctx]: the sequence's tokens; those before `position` that `counts` takes or took are there
    u32* counts;           // [vocab]: how often tokens stand in history[counted_from, counted_to)
    Choice* choice;
    Drawing drawing;
    u64 slot;
    u32 token, position, vocab, format;
    u32 row_bytes, hidden, n, reserved;
    // What `counts` has counted, and what it shall have.
    u32 counted_from, counted_to, from, to;
};
static_assert(sizeof(Begin) == 184, "crates/glm-graph/src/cuda/abi.rs");

constexpr u32 MOST_ROWS = 8;

struct Begins {
    Begin row[MOST_ROWS];
};
static_assert(sizeof(Begins) == 8 * 184, "crates/glm-graph/src/cuda/abi.rs: MOST_TURNS");

// Adds history[first, last) to the counts, or takes it away.
DEV void count(const Begin& p, u32 first, u32 last, u32 one) {
    for (u32 i = first + threadIdx.x; i < last; i += blockDim.x) atomicAdd(p.counts + min(p.history[i], p.vocab - 1), one);
}

// Of a row's blocks the first does what is not the streams; the others have 1024 values of a stream each.
extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS) begin(const __grid_constant__ Begins begins) {
    const Begin& p = begins.row[blockIdx.z];
    const u32 tid = threadIdx.x;
    const u32 token = min(p.last ? *p.last : p.token, p.vocab - 1);
    if (blockIdx.x > 0) {
        const u32 column = (blockIdx.x - 1) * SAMPLE_THREADS + tid;
        if (column >= p.hidden) return;
        const float value =
            p.embeddings ? row_weight(p.format, p.embeddings + size_t(token) * p.row_bytes, column) : p.streams[column];
        for (u32 stream = 0; stream < p.n; stream++) p.streams[size_t(stream) * p.hidden + column] = value;
        return;
    }
    Choice& choice = *p.choice;
    choice.counts[tid] = 0;
    choice.listed[tid] = 0;
    choice.masses[tid] = 0;
    choice.weights[tid] = 0;
    // A step that was undone has been counted: its token is still there.
    const u32 kept = min(p.counted_to, p.position);
    count(p, max(kept, p.counted_from), p.counted_to, ~0u);
    __syncthreads();
    if (tid == 0) {
        choice.drawing = p.drawing;
        choice.best = 0;
        choice.ended = 0;
        *p.turn = {p.slot, p.position, 0};
        p.history[p.position] = token;
    }
    __syncthreads();
    const u32 old_from = min(p.counted_from, kept);
    count(p, old_from, min(p.from, kept), ~0u);
    count(p, max(p.to, old_from), kept, ~0u);
    count(p, p.from, min(old_from, p.to), 1);
    count(p, max(kept, p.from), p.to, 1);
}
