// Streams and events: queues whose work runs in the caller of whatever function comes next, one piece after the other. With
// EMU_STREAMS=late nothing runs before somebody waits or asks: the other end of what a device may do.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "driver.h"

namespace {
std::vector<Stream*> streams;
Stream default_stream;  // the null handle; every other stream is a non-blocking one, so they do not wait for each other
thread_local int recordings;

Stream* of(CUstream handle) {
    if (!handle) return &default_stream;
    return std::find(streams.begin(), streams.end(), handle) == streams.end() ? nullptr : handle;
}
#define STREAM(name, handle)                                                              \
    Stream* const stream = of(handle);                                                    \
    if (!stream) return refuse(CUDA_ERROR_INVALID_HANDLE, "%s: there is no such stream", name)

bool run_front(Stream& stream) {
    if (context_state()) {
        stream.queue.clear();
        return false;
    }
    if (stream.queue.empty() || (stream.queue.front().ready && !stream.queue.front().ready())) return false;
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (CUresult bad = work.run ? work.run() : CUDA_SUCCESS) context_dies(bad);
    return true;
}

// Until a stream is empty, or `done` says so. What a stream waits for may come from another thread.
template <typename Done>
CUresult wait(std::unique_lock<std::mutex>& lock, Done done) {
    double told = now_ms();
    while (run_streams(), !context_state() && !done()) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        lock.lock();
        if (now_ms() - told > 10e3) {
            told = now_ms();
            for (const Stream* s : streams) {
                if (!s->queue.empty()) fprintf(stderr, "emulated device: a stream waits in %s\n", s->queue.front().what);
            }
        }
    }
    return context_state();
}
}  // namespace

bool this_thread_captures() { return recordings > 0; }

void run_streams() {
    for (bool ran = true; ran;) {
        ran = false;
        // The latest stream first, when late: order between streams is nobody's promise.
        for (size_t i = 0; i < streams.size(); i++) {
            Stream* const s = streams[options().late_streams ? streams.size() - 1 - i : i];
            while (run_front(*s)) ran = true;
        }
        while (run_front(default_stream)) ran = true;
    }
}

void finish_all(std::unique_lock<std::mutex>& lock) {
    wait(lock, [] {
        return default_stream.queue.empty() && std::all_of(streams.begin(), streams.end(), [](Stream* s) { return s->queue.empty(); });
    });
}

CUresult enqueue(Stream* handle, Work work) {
    STREAM(work.what, handle);
    if (stream->recording) {
        if (work.ready) return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s cannot be recorded here", work.what);
        stream->recording->nodes.push_back(std::move(work));
        return CUDA_SUCCESS;
    }
    stream->queue.push_back(std::move(work));
    if (!options().late_streams) run_streams();
    return CUDA_SUCCESS;
}

// ---- streams

CUDA_API cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int) {
    BEGIN("cuStreamCreateWithPriority");
    if (flags != 1) return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuStreamCreateWithPriority: only non-blocking streams are emulated");
    streams.push_back(*handle = new Stream);
    return CUDA_SUCCESS;
}

CUDA_API cuStreamDestroy_v2(CUstream handle) {
    BEGIN("cuStreamDestroy", true);
    STREAM("cuStreamDestroy", handle);
    wait(call.lock, [&] { return stream->queue.empty(); });
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return context_state();
}

CUDA_API cuStreamSynchronize(CUstream handle) {
    BEGIN("cuStreamSynchronize");
    STREAM("cuStreamSynchronize", handle);
    if (stream->recording) return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamSynchronize: the stream records");
    return wait(call.lock, [&] { return stream->queue.empty(); });
}

CUDA_API cuStreamQuery(CUstream handle) {
    BEGIN("cuStreamQuery");
    STREAM("cuStreamQuery", handle);
    if (stream->recording) return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamQuery: the stream records");
    run_streams();
    return context_state() ? context_state() : stream->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static uint32_t load(CUdeviceptr at) { return __atomic_load_n((uint32_t*)at, __ATOMIC_SEQ_CST); }

CUDA_API cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr at, uint32_t value, unsigned flags) {
    BEGIN("cuStreamWaitValue32");
    if (at % 4 || !reachable("cuStreamWaitValue32", at, 4)) return CUDA_ERROR_INVALID_VALUE;
    if (flags) return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuStreamWaitValue32: only `at least` is emulated");
    return enqueue(handle, {"cuStreamWaitValue32", [=] { return int32_t(load(at) - value) >= 0; }, nullptr});
}

CUDA_API cuStreamWriteValue32_v2(CUstream handle, CUdeviceptr at, uint32_t value, unsigned) {
    BEGIN("cuStreamWriteValue32");
    if (at % 4 || !reachable("cuStreamWriteValue32", at, 4)) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(handle, {"cuStreamWriteValue32", nullptr, [=] {
                                __atomic_store_n((uint32_t*)at, value, __ATOMIC_SEQ_CST);
                                return CUDA_SUCCESS;
                            }});
}

// ---- events

namespace {
struct Record {
    bool done = false;
    double ms = 0;
};
}  // namespace
struct Event {
    bool timed;
    std::shared_ptr<Record> last;     // null: never recorded
    std::weak_ptr<Graph> recorded_in;
};

CUDA_API cuEventCreate(CUevent* event, unsigned flags) {
    BEGIN("cuEventCreate");
    *event = new Event{!(flags & 2), nullptr, {}};
    return CUDA_SUCCESS;
}

CUDA_API cuEventDestroy_v2(CUevent event) {
    BEGIN("cuEventDestroy");
    delete event;
    return CUDA_SUCCESS;
}

CUDA_API cuEventRecord(CUevent event, CUstream handle) {
    BEGIN("cuEventRecord");
    STREAM("cuEventRecord", handle);
    event->recorded_in = stream->recording;
    if (stream->recording) return CUDA_SUCCESS;
    const auto record = event->last = std::make_shared<Record>();
    return enqueue(handle, {"cuEventRecord", nullptr, [record] {
                                record->done = true;
                                record->ms = now_ms();
                                return CUDA_SUCCESS;
                            }});
}

CUDA_API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
    BEGIN("cuStreamWaitEvent");
    STREAM("cuStreamWaitEvent", handle);
    const auto graph = event->recorded_in.lock();
    if (graph != stream->recording) {
        return refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "cuStreamWaitEvent: graphs of several streams are not emulated");
    }
    const auto record = event->last;
    if (graph || !record) return CUDA_SUCCESS;
    return enqueue(handle, {"cuStreamWaitEvent", [record] { return record->done; }, nullptr});
}

CUDA_API cuEventSynchronize(CUevent event) {
    BEGIN("cuEventSynchronize");
    if (event->recorded_in.lock()) return refuse(CUDA_ERROR_CAPTURED_EVENT, "cuEventSynchronize: an event of a graph");
    const auto record = event->last;
    return wait(call.lock, [&] { return !record || record->done; });
}

CUDA_API cuEventQuery(CUevent event) {
    BEGIN("cuEventQuery");
    if (event->recorded_in.lock()) return refuse(CUDA_ERROR_CAPTURED_EVENT, "cuEventQuery: an event of a graph");
    run_streams();
    return context_state() ? context_state() : !event->last || event->last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUDA_API cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
    BEGIN("cuEventElapsedTime");
    if (!from->timed || !to->timed || !from->last || !to->last) {
        return refuse(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime: an event without a time");
    }
    run_streams();
    if (!from->last->done || !to->last->done) return CUDA_ERROR_NOT_READY;
    *ms = float(to->last->ms - from->last->ms);
    return CUDA_SUCCESS;
}

// ---- graphs: the work that a stream would have done, in its order

struct GraphExec {
    std::vector<Work> nodes;
};

CUDA_API cuStreamBeginCapture_v2(CUstream handle, int) {
    BEGIN("cuStreamBeginCapture");
    STREAM("cuStreamBeginCapture", handle);
    if (stream == &default_stream || stream->recording) {
        return refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamBeginCapture: this stream cannot record now");
    }
    stream->recording = std::make_shared<Graph>();
    recordings++;
    return CUDA_SUCCESS;
}

CUDA_API cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    BEGIN("cuStreamEndCapture");
    STREAM("cuStreamEndCapture", handle);
    if (!stream->recording) return refuse(CUDA_ERROR_INVALID_VALUE, "cuStreamEndCapture: the stream does not record");
    *graph = new Graph(*stream->recording);
    stream->recording.reset();
    recordings--;
    return CUDA_SUCCESS;
}

CUDA_API cuGraphGetNodes(CUgraph graph, void** nodes, size_t* count) {
    BEGIN("cuGraphGetNodes");
    if (nodes) return refuse(CUDA_ERROR_NOT_SUPPORTED, "cuGraphGetNodes: only their number is emulated");
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
}

CUDA_API cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
    BEGIN("cuGraphInstantiateWithFlags");
    *exec = new GraphExec{graph->nodes};
    return CUDA_SUCCESS;
}

CUDA_API cuGraphUpload(CUgraphExec, CUstream handle) {
    BEGIN("cuGraphUpload");
    STREAM("cuGraphUpload", handle);
    return CUDA_SUCCESS;
}

CUDA_API cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    BEGIN("cuGraphLaunch");
    for (const Work& node : exec->nodes) {
        if (CUresult bad = enqueue(handle, node)) return bad;
    }
    return CUDA_SUCCESS;
}

CUDA_API cuGraphDestroy(CUgraph graph) {
    BEGIN("cuGraphDestroy");
    delete graph;
    return CUDA_SUCCESS;
}

CUDA_API cuGraphExecDestroy(CUgraphExec exec) {
    BEGIN("cuGraphExecDestroy");
    delete exec;
    return CUDA_SUCCESS;
}
