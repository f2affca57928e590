// DPI reader of a file of 16-byte records, in pieces: $fread of a memory takes it byte by byte.

#include <cstdio>
#include <cstring>

#include "svdpi.h"

namespace {

constexpr size_t RECORD = 16;
constexpr size_t PIECE = 4096;

struct Reader {
    FILE* file;
    size_t filled = 0;
    size_t position = 0;
    unsigned char records[PIECE * RECORD];
};

}  // namespace

extern "C" {

// A handle for the file `name`, null when it cannot be opened.
void* trace_open(const char* name) {
    FILE* const file = std::fopen(name, "rb");
    return file ? new Reader{file} : nullptr;
}

// The next record of `handle`, least significant byte first; 0 at the end.
int trace_next(void* handle, svBitVecVal* record) {
    Reader* const reader = static_cast<Reader*>(handle);
    if (reader->position == reader->filled) {
        reader->filled = std::fread(reader->records, RECORD, PIECE, reader->file);
        reader->position = 0;
        if (!reader->filled) return 0;
    }
    std::memcpy(record, reader->records + RECORD * reader->position++, RECORD);
    return 1;
}
}
