// What entered and left a model in every cycle of a run. While the same enters it once more, what it does need not be
// simulated: what leaves is known. It lies in memory that a process shares with those that it forks.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

// So many words of 64 bits, 0 at first, in memory shared with processes that are forked.
inline uint64_t* shared_words(size_t count) {
    void* const place = mmap(nullptr, count * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) throw std::runtime_error("no memory can be shared");
    return static_cast<uint64_t*>(place);
}

class History {
public:
    // Of `inputs` and `outputs`, words of 32 bits, in the first `cycles` cycles.
    History(size_t inputs, size_t outputs, uint64_t cycles)
        : inputs{inputs}, outputs{outputs}, cycles{cycles},
          place{reinterpret_cast<uint32_t*>(shared_words(1 + (cycles * (inputs + outputs) + 1) / 2))} {}

    void enter(uint64_t cycle, const uint32_t* words) {
        if (cycle >= cycles) throw std::runtime_error("a run is longer than what can be kept of it");
        std::memcpy(at(cycle), words, inputs * sizeof(uint32_t));
        entering = cycle;
    }
    void leave(uint64_t cycle, const uint32_t* words) {
        std::memcpy(at(cycle) + inputs, words, outputs * sizeof(uint32_t));
        *place = static_cast<uint32_t>(cycle + 1);
    }

    // The cycle that was entered last.
    uint64_t current() const { return entering; }

    // Cycles that are known.
    uint64_t length() const { return *place; }
    const uint32_t* entered(uint64_t cycle) const { return at(cycle); }
    const uint32_t* left(uint64_t cycle) const { return at(cycle) + inputs; }
    bool enters(uint64_t cycle, const uint32_t* words) const {
        return cycle < length() && std::memcmp(at(cycle), words, inputs * sizeof(uint32_t)) == 0;
    }

private:
    uint32_t* at(uint64_t cycle) const { return place + 2 + cycle * (inputs + outputs); }

    const size_t inputs, outputs;
    const uint64_t cycles;
    // How many cycles are known, and from the next multiple of 64 bits on what is.
    uint32_t* const place;
    uint64_t entering = 0;
};
