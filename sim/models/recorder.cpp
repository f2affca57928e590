// The file that `recorder.sv` writes: records of 16 bytes, the cycle (32 bits), the source (32) and its payload (64), least
// significant byte first. Python is not there in between, so that a run is hardly slower for it.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {
struct Record {
    uint32_t cycle;
    uint32_t source;
    uint64_t payload;
};
constexpr size_t BUFFERED = 1 << 16;
}  // namespace

extern "C" {

void* recorder_open(const char* name) {
    FILE* const file = std::fopen(name, "wb");
    if (file == nullptr) {
        std::perror(name);
        std::exit(1);
    }
    std::setvbuf(file, nullptr, _IOFBF, BUFFERED);
    return file;
}

void recorder_put(void* file, int cycle, int source, long long payload) {
    const Record record{static_cast<uint32_t>(cycle), static_cast<uint32_t>(source), static_cast<uint64_t>(payload)};
    if (std::fwrite(&record, sizeof record, 1, static_cast<FILE*>(file)) != 1) {
        std::perror("the timeline cannot be written");
        std::exit(1);
    }
}

void recorder_close(void* file) {
    if (std::fclose(static_cast<FILE*>(file)) != 0) std::perror("the timeline cannot be written");
}
}
