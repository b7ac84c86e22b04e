// libnvrtc.so.12: a unit's text through emu.py and g++, to a shared object which it hands out as the cubin. What was compiled once
// is kept, by the hash of everything that decides it, in $EMU_UNITS or the folder `units` beside this library.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "sha256.h"

#define NVRTC_API extern "C" __attribute__((visibility("default")))

namespace {
enum Result { SUCCESS = 0, OUT_OF_MEMORY = 1, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6, INTERNAL = 11 };
const int ARCHS[] = {70, 75, 80, 86, 89, 90, 100, 120};

struct Text {
    std::string name, text;
};
struct Program {
    Text source;
    std::vector<Text> headers;
    std::string log, cubin;
};

std::string own_folder() {
    Dl_info info;
    dladdr((void*)own_folder, &info);
    std::string path = info.dli_fname;
    const size_t slash = path.rfind('/');
    path = slash == std::string::npos ? "." : path.substr(0, slash);
    char* full = realpath(path.c_str(), nullptr);
    if (full) path = full;
    free(full);
    return path;
}

bool read_file(const std::string& path, std::string& text) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return false;
    std::ostringstream all;
    all << file.rdbuf();
    text = all.str();
    return true;
}
bool write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    return bool(file.flush());
}

// Runs a command; what it says goes to the log.
bool run(const std::string& command, std::string& log) {
    FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    if (!pipe) return false;
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) log.append(part, n);
    return pclose(pipe) == 0;
}

std::string quoted(const std::string& text) {
    std::string out = "'";
    for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

// As the assembler's report of each entry, without numbers: there are no registers.
std::string report(const std::string& unit_cpp, const std::string& arch) {
    std::string out;
    for (size_t at = 0; (at = unit_cpp.find("emu::Entry emu_entry_", at)) != std::string::npos; at++) {
        const size_t from = unit_cpp.find('"', at) + 1, to = unit_cpp.find('"', from);
        out += "ptxas info    : Compiling entry function '" + unit_cpp.substr(from, to - from) + "' for '" + arch + "'\n";
    }
    return out;
}

Result compile(Program& p, const std::string& arch, const std::vector<std::string>& defines) {
    const std::string home = own_folder(), emulator = home + "/emulator";
    Sha256 hash;
    auto part = [&](const std::string& text) {
        const uint64_t n = text.size();
        hash.add(&n, sizeof n);
        hash.add(text.data(), text.size());
    };
    std::string text;
    if (!read_file(emulator + "/flags", text)) {
        p.log = "the folder " + emulator + " is missing; kernels/emulator/device/build.sh makes it\n";
        return INTERNAL;
    }
    const std::string flags = text.substr(0, text.find('\n'));
    for (const char* file : {"flags", "emu.py", "emu.h", "emu_device.h", "unit.h", "unit_abi.h"}) {
        read_file(emulator + "/" + file, text);
        part(text);
    }
    part(arch), part(p.source.name), part(p.source.text);
    for (const Text& header : p.headers) part(header.name), part(header.text);
    for (const std::string& define : defines) part(define);
    const char* named = getenv("EMU_UNITS");
    const std::string units = named && *named ? named : home + "/units", stem = units + "/" + hash.hex();
    if (read_file(stem + ".so", p.cubin) && read_file(stem + ".log", p.log)) return SUCCESS;

    mkdir(units.c_str(), 0777);
    static std::atomic<unsigned> count;
    const std::string work = units + "/work." + std::to_string(getpid()) + "." + std::to_string(count++);
    mkdir(work.c_str(), 0777);
    const std::string cu = work + "/" + p.source.name, cpp = work + "/unit.cpp", so = work + "/unit.so";
    Result result = SUCCESS;
    bool written = write_file(cu, p.source.text);
    for (const Text& header : p.headers) written = written && write_file(work + "/" + header.name, header.text);
    std::string options;
    for (const std::string& define : defines) options += " -D " + quoted(define);
    if (!written) {
        p.log = work + " cannot be written\n";
        result = INTERNAL;
    } else if (!run("python3 " + quoted(emulator + "/emu.py") + " " + quoted(cu) + " --device --arch " + arch + " -I " + quoted(work) +
                        " -o " + quoted(cpp) + options, p.log) ||
               !run("LC_ALL=C g++ " + flags + " -I" + quoted(emulator) + " " + quoted(cpp) + " -o " + quoted(so), p.log) || !read_file(so, p.cubin)) {
        result = COMPILATION;
        // Names in quotes as NVIDIA's compiler has them.
        for (char& c : p.log) c = c == '\'' ? '"' : c;
    } else {
        read_file(cpp, text);
        p.log += report(text, arch);
        // The log first: whoever finds the object finds its log, too.
        if (write_file(work + "/log", p.log) && !rename((work + "/log").c_str(), (stem + ".log").c_str())) {
            rename(so.c_str(), (stem + ".so").c_str());
        }
    }
    std::string nothing;
    run("rm -rf " + quoted(work), nothing);
    return result;
}
}  // namespace

typedef Program* nvrtcProgram;

NVRTC_API int nvrtcVersion(int* major, int* minor) {
    // No version of NVIDIA's, so that no cache takes one's code for the other's.
    *major = 12, *minor = 999;
    return SUCCESS;
}

NVRTC_API int nvrtcGetNumSupportedArchs(int* count) {
    *count = int(sizeof ARCHS / sizeof *ARCHS);
    return SUCCESS;
}

NVRTC_API int nvrtcGetSupportedArchs(int* archs) {
    memcpy(archs, ARCHS, sizeof ARCHS);
    return SUCCESS;
}

NVRTC_API const char* nvrtcGetErrorString(int result) {
    switch (result) {
        case SUCCESS: return "NVRTC_SUCCESS";
        case OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
        case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case COMPILATION: return "NVRTC_ERROR_COMPILATION";
        default: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}

NVRTC_API int nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name, int n, const char* const* texts,
                                 const char* const* names) {
    if (!program || !source || n < 0) return INVALID_INPUT;
    auto* p = new Program{{name ? name : "unit.cu", source}, {}, "", ""};
    for (int i = 0; i < n; i++) p->headers.push_back({names[i], texts[i]});
    *program = p;
    return SUCCESS;
}

NVRTC_API int nvrtcCompileProgram(nvrtcProgram p, int n, const char* const* options) {
    if (!p) return INVALID_PROGRAM;
    std::string arch;
    std::vector<std::string> defines;
    p->log.clear(), p->cubin.clear();
    bool known = true;
    for (int i = 0; i < n; i++) {
        const std::string o = options[i];
        const std::string value = o.substr(o.find('=') + 1);
        if (o.rfind("--gpu-architecture=", 0) == 0) arch = value;
        else if (o.rfind("-D", 0) == 0) defines.push_back(o.substr(2));
        else if (o == "--std=c++17" || o == "--fmad=false" || o == "--ftz=false" || o == "--prec-div=true" || o == "--prec-sqrt=true" ||
                 o == "-default-device" || o.rfind("--ptxas-options=", 0) == 0) continue;
        else p->log += "the emulated NVRTC does not know the option " + o + "\n", known = false;
    }
    bool has = false;
    for (int number : ARCHS) has |= arch == "sm_" + std::to_string(number);
    if (!has) p->log += "the emulated NVRTC does not know the architecture `" + arch + "`\n";
    if (!known || !has) return INVALID_OPTION;
    return compile(*p, arch, defines);
}

NVRTC_API int nvrtcGetCUBINSize(nvrtcProgram p, size_t* bytes) {
    *bytes = p->cubin.size();
    return p->cubin.empty() ? INVALID_PROGRAM : SUCCESS;
}
NVRTC_API int nvrtcGetCUBIN(nvrtcProgram p, char* to) {
    memcpy(to, p->cubin.data(), p->cubin.size());
    return SUCCESS;
}
NVRTC_API int nvrtcGetProgramLogSize(nvrtcProgram p, size_t* bytes) {
    *bytes = p->log.size() + 1;
    return SUCCESS;
}
NVRTC_API int nvrtcGetProgramLog(nvrtcProgram p, char* to) {
    memcpy(to, p->log.c_str(), p->log.size() + 1);
    return SUCCESS;
}
NVRTC_API int nvrtcDestroyProgram(nvrtcProgram* program) {
    delete *program;
    *program = nullptr;
    return SUCCESS;
}
