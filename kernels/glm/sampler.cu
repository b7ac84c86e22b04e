// From logits to a token, for each row: three launches, of which a greedy step needs the first and the end of the last. Rows of logits
// and of what comes of them are `vocab` values apart.
#include "sampler.cuh"
#include "turn.cuh"

// A logit after bias, penalties and bans.
DEV float adjusted_logit(const Drawing& d, float logit, u32 token) {
    float bias = 0.0f;
    if (d.bias) bias = d.bias[token];
    if (bias != 0.0f && bias == bias) logit = finite_above(logit + bias);
    if (d.counts) {
        const u32 seen = d.counts[token];
        if (seen != 0) {
            logit = logit > 0.0f ? logit / d.repetition : logit * d.repetition;
            logit = finite_above(logit - (d.presence + d.frequency * float(seen)));
        }
    }
    return bias == bias ? logit : bits(0xff800000u);
}

// A thread a token: its logit as the draw takes it, and the best of all. A logit that is not finite is a fault.
extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_adjust(const float* logits, u32 vocab, Choice* choice, float* adjusted, u32* fault, u32 code) {
    let_successor_begin();
    wait_for_predecessor();
    logits = of_row(logits, vocab), adjusted = of_row(adjusted, vocab), choice = of_row(choice, 1), fault = of_row(fault, 1);
    const u32 token = blockIdx.x * SAMPLE_THREADS + threadIdx.x, mode = choice->drawing.mode;
    u64 best = 0;
    if (token < vocab) {
        float logit = logits[token];
        if (!(fabsf(logit) < bits(0x7f800000u))) atomicCAS(fault, 0u, code);
        if (mode != NO_DRAW) {
            logit = adjusted_logit(choice->drawing, logit, token);
            if (mode == DRAW) {
                logit = logit == logit ? finite_above(logit) : bits(0xff800000u);
                adjusted[token] = logit;
            }
            best = key_of(logit, token);
        }
    }
    if (mode == NO_DRAW) return;
    for (u32 mask = 1; mask < WARP; mask *= 2) best = max(best, lane_xor(best, mask));
    if (threadIdx.x % WARP == 0) shared_at<u64>(AT_TOTALS + threadIdx.x / WARP * 8) = best;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    best = shared_at<u64>(AT_TOTALS + threadIdx.x * 8);
    for (u32 mask = 1; mask < WARP; mask *= 2) best = max(best, lane_xor(best, mask));
    if (threadIdx.x == 0) atomicMax(&choice->best, best);
}

// Whether a token is drawn, and not just the best one taken. Where everything is banned there is nothing to draw.
DEV bool draws(const Choice* choice) {
    return choice->drawing.mode == DRAW && logit_of(choice->best) != bits(0xff800000u);
}

// How many candidates each bin has, and their masses. Sums of a block are 20 low bits and the rest, which 32 bits hold for all of
// its threads.
extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS) sample_count(const float* adjusted, u32 vocab, Choice* choice) {
    constexpr u32 PARTS = 5, EACH = BINS * 4, LOW = (1u << 20) - 1;
    let_successor_begin();
    wait_for_predecessor();
    adjusted = of_row(adjusted, vocab), choice = of_row(choice, 1);
    if (!draws(choice)) return;
    const u32 token = blockIdx.x * SAMPLE_THREADS + threadIdx.x, own = threadIdx.x * 4;
    for (u32 part = 0; part < PARTS; part++) shared_at<u32>(part * EACH + own) = 0;
    __syncthreads();
    if (token < vocab) {
        const float below = adjusted[token] - logit_of(choice->best);
        const u64 mass = mass_of(below), weight = mass_of(below / choice->drawing.temperature);
        const u32 bin = bin_of(below) * 4;
        atomicAdd(&shared_at<u32>(bin), 1u);
        if (mass != 0) {
            atomicAdd(&shared_at<u32>(EACH + bin), u32(mass) & LOW);
            atomicAdd(&shared_at<u32>(2 * EACH + bin), u32(mass >> 20));
        }
        if (weight != 0) {
            atomicAdd(&shared_at<u32>(3 * EACH + bin), u32(weight) & LOW);
            atomicAdd(&shared_at<u32>(4 * EACH + bin), u32(weight >> 20));
        }
    }
    __syncthreads();
    const u32 count = shared_at<u32>(own);
    if (count == 0) return;
    const u64 mass = (u64(shared_at<u32>(2 * EACH + own)) << 20) + shared_at<u32>(EACH + own);
    const u64 weight = (u64(shared_at<u32>(4 * EACH + own)) << 20) + shared_at<u32>(3 * EACH + own);
    atomicAdd(choice->counts + threadIdx.x, count);
    if (mass != 0) atomicAdd(choice->masses + threadIdx.x, mass);
    if (weight != 0) atomicAdd(choice->weights + threadIdx.x, weight);
}

// Bins as one thread sees them: its own, and the sums before each in shared memory.
struct Bins {
    u32 count, count_before;
    u64 mass, mass_before, weight, weight_before, all_masses;
};

DEV Bins read_bins(const Choice* choice) {
    Bins b;
    const u32 own = threadIdx.x;
    u32 counts;
    u64 weights;
    b.count = choice->counts[own], b.mass = choice->masses[own], b.weight = choice->weights[own];
    b.count_before = sum_before(b.count, counts);
    b.mass_before = sum_before(b.mass, b.all_masses);
    b.weight_before = sum_before(b.weight, weights);
    shared_at<u32>(AT_COUNTS + own * 4) = b.count_before;
    shared_at<u64>(AT_MASSES + own * 8) = b.mass_before;
    shared_at<u64>(AT_WEIGHTS + own * 8) = b.weight_before;
    __syncthreads();
    return b;
}

// The least sum of masses that top-p keeps.
DEV u64 wanted_of(float top_p, u64 total) { return u64(ceil(double(top_p) * double(total))); }

// Which bins have to be listed.
struct Listed {
    u32 last;   // all up to this one
    u32 top_k;  // and the one in which the k-th candidate is
};

DEV Listed needed(const Drawing& d, const Bins& b, u32 vocab) {
    Listed listed = {bin_of(d.lowest), BINS};
    u64 most = b.all_masses, before;
    if (d.top_k < vocab) {
        listed.top_k = find_place(b.count, b.count_before, d.top_k - 1, before);
        listed.last = min(listed.last, listed.top_k);
        if (listed.top_k + 1 < BINS) most = shared_at<u64>(AT_MASSES + listed.top_k * 8 + 8);
    }
    if (d.top_p < 1.0f) listed.last = min(listed.last, find_place(b.mass, b.mass_before, wanted_of(d.top_p, most) - 1, before));
    return listed;
}

// The drawn token; the lists of the needed bins are complete. One block.
DEV u32 drawn(const Choice* choice, const Bins& b, u32 vocab, u32 top_k_bin, const u64* list) {
    const Drawing& d = choice->drawing;
    const float largest = logit_of(choice->best), temperature = d.temperature, lowest = d.lowest, top_p = d.top_p;
    const u32 top_k = d.top_k, lowest_bin = bin_of(lowest);
    auto list_of = [=](u32 bin) { return list + shared_at<u32>(AT_COUNTS + bin * 4); };
    auto mass = [=](u64 key) { return mass_of(logit_of(key) - largest); };
    // Kept are keys down to this one, and of these the ones above `lowest`. A cut in a bin behind that of `lowest` changes nothing.
    u64 cut = 0, total = b.all_masses, before;
    u32 cut_bin = BINS;
    if (top_k < vocab && (top_k_bin <= lowest_bin || top_p < 1.0f)) {
        const u64* const keys = list_of(top_k_bin);
        const u32 n = choice->counts[top_k_bin], place = top_k - 1 - shared_at<u32>(AT_COUNTS + top_k_bin * 4);
        cut = select(keys, n, place, [](u64) { return u64(1); });
        cut_bin = top_k_bin;
        total = shared_at<u64>(AT_MASSES + top_k_bin * 8) + sum_over(keys, n, [=](u64 key) { return key >= cut ? mass(key) : 0; });
    }
    if (top_p < 1.0f) {
        const u64 wanted = wanted_of(top_p, total);
        const u32 bin = find_place(b.mass, b.mass_before, wanted - 1, before);
        if (bin <= lowest_bin) {
            cut = select(list_of(bin), choice->counts[bin], wanted - 1 - before, mass);
            cut_bin = bin;
        }
    }
    auto kept = [=](u64 key) {
        const float below = logit_of(key) - largest;
        return key >= cut && below >= lowest ? mass_of(below / temperature) : 0;
    };
    u32 bin = min(cut_bin, lowest_bin);
    const u64 whole = shared_at<u64>(AT_WEIGHTS + bin * 8), all = whole + sum_over(list_of(bin), choice->counts[bin], kept);
    // draw / 2^53 of it.
    const u64 target = __umul64hi(d.draw, all) << 11 | (d.draw * all) >> 53;
    before = whole;
    if (target < whole) bin = find_place(b.weight, b.weight_before, target, before);
    return token_of(select(list_of(bin), choice->counts[bin], target - before, kept));
}

// Lists the candidates of the bins that matter, each bin's at its own place; the block that ends last cuts and draws, and tells
// the token and the fault.
extern "C" __global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_draw(const float* adjusted, u32 vocab, Choice* choice, u64* list, u32* fault) {
    let_successor_begin();
    wait_for_predecessor();
    adjusted = of_row(adjusted, vocab), choice = of_row(choice, 1), list = of_row(list, vocab), fault = of_row(fault, 1);
    const Drawing& d = choice->drawing;
    u32 token = d.mode == NO_DRAW ? NO_TOKEN : token_of(choice->best);
    if (draws(choice)) {
        const Bins b = read_bins(choice);
        const Listed listed = needed(d, b, vocab);
        for (u32 mine = blockIdx.x * SAMPLE_THREADS + threadIdx.x; mine < vocab; mine += gridDim.x * SAMPLE_THREADS) {
            const float logit = adjusted[mine];
            const u32 bin = bin_of(logit - logit_of(choice->best));
            if (bin <= listed.last || bin == listed.top_k) {
                list[shared_at<u32>(AT_COUNTS + bin * 4) + atomicAdd(choice->listed + bin, 1u)] = key_of(logit, mine);
            }
        }
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) shared_at<u32>(AT_FOUND) = atomicAdd(&choice->ended, 1u) + 1 == gridDim.x;
        __syncthreads();
        if (!shared_at<u32>(AT_FOUND)) return;
        __threadfence();
        __syncthreads();
        token = drawn(choice, b, vocab, listed.top_k, list);
    } else if (blockIdx.x != 0) {
        return;
    }
    if (threadIdx.x != 0) return;
    *d.sampled = token;
    d.answer[0] = token;
    d.answer[1] = *fault;
    *fault = 0;
}
