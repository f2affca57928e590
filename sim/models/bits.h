// Fields of a vector of bits that is kept as 32-bit words, the lowest first, as Verilator keeps its wide ports.
#pragma once

#include <cstdint>

struct Field {
    int low;
    int width;

    constexpr int words() const { return (width + 31) / 32; }
};

// The bits of `field`, at most 64, in `words`.
inline uint64_t get_bits(const uint32_t* words, Field field) {
    uint64_t value = 0;
    for (int taken = 0; taken < field.width;) {
        const int place = field.low + taken, offset = place % 32;
        value |= static_cast<uint64_t>(words[place / 32] >> offset) << taken;
        taken += 32 - offset;
    }
    return field.width == 64 ? value : value & ((uint64_t{1} << field.width) - 1);
}

// Makes `value` the bits of `field`, at most 64, in `words`.
inline void set_bits(uint32_t* words, Field field, uint64_t value) {
    for (int given = 0; given < field.width;) {
        const int place = field.low + given, offset = place % 32;
        const int count = field.width - given < 32 - offset ? field.width - given : 32 - offset;
        const uint32_t mask = static_cast<uint32_t>((uint64_t{1} << count) - 1) << offset;
        const uint32_t bits = static_cast<uint32_t>(value >> given) << offset;
        words[place / 32] = (words[place / 32] & ~mask) | (bits & mask);
        given += count;
    }
}

inline bool get_bit(const uint32_t* words, Field field) { return words[field.low / 32] >> (field.low % 32) & 1; }
