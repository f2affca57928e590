// One direction of a wire between two models that are advanced by themselves, a quantum of cycles at a time: what is sent
// in a cycle arrives exactly `delay` cycles later, whichever of the two is advanced first.
//
// The sender's thread calls `send` with rising cycles, the receiver's `due` for every cycle, and between two quanta one
// thread calls `exchange`. A quantum may be as long as the delay: what is sent in it cannot arrive in it.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "digest.h"

class Wire {
public:
    // `words` of 32 bits are sent at once, at most every cycle.
    Wire(uint64_t delay, int words) : delay{delay}, words{words} {
        // Two quanta's at most lie here: one that arrives, one that is sent.
        while (capacity < 2 * delay + 1) capacity *= 2;
        times.resize(capacity);
        payloads.resize(capacity * words);
    }

    // Where it lies until it arrives.
    uint32_t* send(uint64_t now, const uint32_t* payload) {
        const uint64_t place = sent % capacity;
        times[place] = now + delay;
        ++sent;
        return static_cast<uint32_t*>(std::memcpy(&payloads[place * words], payload, words * sizeof(uint32_t)));
    }

    void exchange() { known = sent; }

    // What arrives in cycle `now`, valid until the next exchange, or null.
    const uint32_t* due(uint64_t now) {
        if (taken == known) return nullptr;
        const uint64_t place = taken % capacity;
        if (times[place] > now) return nullptr;
        if (times[place] < now) throw std::logic_error("what was sent on a wire arrived too late");
        ++taken;
        return &payloads[place * words];
    }

    // What is under way, and when it arrives.
    void add_to(Digest& digest) const {
        digest.add(sent - taken);
        for (uint64_t n = taken; n < sent; ++n) {
            digest.add(times[n % capacity]);
            digest.add(&payloads[n % capacity * words], words * sizeof(uint32_t));
        }
    }

private:
    const uint64_t delay;
    const int words;
    uint64_t capacity = 1;
    std::vector<uint64_t> times;
    std::vector<uint32_t> payloads;
    // The sender's, the receiver's, and what it knows of the sender's: each on a line of cache of its own.
    alignas(64) uint64_t sent = 0;
    alignas(64) uint64_t taken = 0;
    alignas(64) uint64_t known = 0;
};
