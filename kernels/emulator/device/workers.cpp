// Threads that run blocks, each with its own copy of a unit; and what becomes of a wild address.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <thread>

#include "driver.h"

namespace {
struct Job {
    std::mutex lock;
    std::condition_variable begun, ended;
    const Launch* launch = nullptr;
    device::Share share;
    uint64_t number = 0;
    unsigned workers = 0, left = 0;
    bool good = true;
};
Job& job = *new Job;  // for the workers, which never end
thread_local const device::Unit* running;
struct sigaction before[32];

void on_signal(int number, siginfo_t* info, void* context) {
    if (running) running->fault(number, info->si_addr, (const void*)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP]);
    // Not a kernel's: whoever was here before us.
    const struct sigaction& other = before[number];
    if (other.sa_flags & SA_SIGINFO) return other.sa_sigaction(number, info, context);
    if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) return other.sa_handler(number);
    sigaction(number, &other, nullptr);
}

uint8_t* map(size_t bytes) {
    void* const got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got != MAP_FAILED) return (uint8_t*)got;
    perror("emulated device: stacks");
    exit(3);
}

void work(unsigned own) {
    stack_t s = {};
    s.ss_size = 64 << 10;
    s.ss_sp = map(s.ss_size);
    sigaltstack(&s, nullptr);
    // Mapped once for all units: the system allows a process 65,530 pieces of memory, and each page without access ends one.
    uint8_t* const stacks = map(device::STACK * device::MOST_THREADS);
    for (uint32_t t = 0; t < device::MOST_THREADS; t++) mprotect(stacks + t * device::STACK, 4096, PROT_NONE);
    uint64_t last = 0;
    for (;;) {
        std::unique_lock<std::mutex> lock(job.lock);
        job.begun.wait(lock, [&] { return job.number != last; });
        last = job.number;
        if (own >= job.workers) continue;
        const device::Unit* const unit = job.launch->function->module->units[own];
        lock.unlock();
        running = unit;
        const bool good = unit->run(job.share, stacks);
        running = nullptr;
        lock.lock();
        job.good &= good;
        if (--job.left == 0) job.ended.notify_one();
    }
}

std::map<std::string, std::pair<uint64_t, double>>& times() {
    static auto* all = new std::map<std::string, std::pair<uint64_t, double>>;
    return *all;
}
void tell_times() {
    std::vector<std::pair<double, std::string>> rows;
    double all = 0;
    for (const auto& [name, time] : times()) {
        char row[160];
        snprintf(row, sizeof row, "%9.1f ms %8llu launches  %s", time.second, (unsigned long long)time.first, name.c_str());
        rows.push_back({-time.second, row});
        all += time.second;
    }
    std::sort(rows.begin(), rows.end());
    fprintf(stderr, "emulated device: %.1f ms in kernels\n", all);
    for (const auto& [time, row] : rows) fprintf(stderr, "%s\n", row.c_str());
}

uint64_t random_state;
uint32_t random_below(uint64_t n) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return uint32_t((random_state >> 33) % n);
}
}  // namespace

void start_workers() {
    random_state = options().seed;
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, &before[number]);
    for (unsigned i = 0; i < options().workers; i++) std::thread(work, i).detach();
    if (options().stats) atexit(tell_times);
}

CUresult run_launch(const Launch& launch) {
    const double begun = now_ms();
    std::vector<void*> places;
    for (const auto& value : launch.values) places.push_back((void*)value.data());
    const uint64_t blocks = uint64_t(launch.grid[0]) * launch.grid[1] * launch.grid[2];
    std::vector<uint32_t> turn;
    if (options().order != Options::FORWARD) {
        for (uint64_t i = 0; i < blocks; i++) turn.push_back(uint32_t(options().order == Options::REVERSE ? blocks - 1 - i : i));
        if (options().order == Options::RANDOM) {
            for (uint64_t i = blocks; i > 1; i--) std::swap(turn[i - 1], turn[random_below(i)]);
        }
    }
    std::atomic<uint64_t> next{0};
    std::unique_lock<std::mutex> lock(job.lock);
    job.share = {launch.function->number, {}, {}, launch.shared, places.data(), blocks, turn.empty() ? nullptr : turn.data(), &next};
    std::copy(launch.grid, launch.grid + 3, job.share.grid);
    std::copy(launch.block, launch.block + 3, job.share.block);
    job.launch = &launch;
    job.workers = job.left = unsigned(std::min<uint64_t>(blocks, options().workers));
    job.good = true;
    job.number++;
    job.begun.notify_all();
    job.ended.wait(lock, [] { return job.left == 0; });
    if (options().stats) {
        auto& time = times()[launch.function->entry->name];
        time.first++, time.second += now_ms() - begun;
    }
    if (job.good) return CUDA_SUCCESS;
    fprintf(stderr, "emulated device: %s failed; nothing runs on this device any more\n", launch.function->entry->name);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}
