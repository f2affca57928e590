// A digest of bytes in memory, 64 bits: fast, not cryptographic. Equal digests are taken for equal bytes.
#pragma once

#include <cstdint>
#include <cstring>

class Digest {
public:
    void add(const void* data, size_t bytes) {
        const auto* place = static_cast<const unsigned char*>(data);
        // Independent lanes, so that one multiplication need not wait for another.
        for (; bytes >= sizeof lanes; bytes -= sizeof lanes, place += sizeof lanes) {
            uint64_t words[4];
            std::memcpy(words, place, sizeof words);
            for (int n = 0; n < 4; ++n) lanes[n] = turn(lanes[n], words[n]);
        }
        for (; bytes; bytes -= bytes < 8 ? bytes : 8, place += 8) {
            uint64_t word = 0;
            std::memcpy(&word, place, bytes < 8 ? bytes : 8);
            lanes[0] = turn(lanes[0], word);
        }
    }

    template <typename Value>
    void add(const Value& value) {
        add(&value, sizeof value);
    }

    uint64_t value() const {
        uint64_t sum = lanes[0];
        for (int n = 1; n < 4; ++n) sum = turn(sum, lanes[n]);
        return sum;
    }

private:
    static uint64_t turn(uint64_t sum, uint64_t word) {
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        return sum ^ sum >> 29;
    }

    uint64_t lanes[4] = {1, 2, 3, 4};
};
