// Random bit errors of a wire: every bit that is sent is wrong with the same probability, whatever the others are.
//
// The bits between two errors are drawn (a geometric distribution), so that a wire without an error soon costs nothing.
// Each wire draws for itself, by what is sent on it: threads and quanta change nothing.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

class BitErrors {
public:
    // `rate`: probability of an error a bit, 0 for none. `seed` tells wires apart.
    BitErrors(double rate, uint64_t seed) : rate{rate}, random{seed} { left = gap(); }

    // Flip bits of those from `first` to `first + count - 1` of `words`.
    void damage(uint32_t* words, int first, int count) {
        int place = 0;
        while (left < static_cast<uint64_t>(count - place)) {
            place += static_cast<int>(left);
            words[(first + place) / 32] ^= uint32_t{1} << ((first + place) % 32);
            ++flipped;
            ++place;
            left = gap();
        }
        left -= static_cast<uint64_t>(count - place);
    }

    uint64_t flipped = 0;

private:
    // Right bits up to the next wrong one.
    uint64_t gap() {
        if (rate <= 0) return std::numeric_limits<uint64_t>::max();
        const double uniform = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
        return static_cast<uint64_t>(std::log(uniform) / std::log1p(-rate));
    }

    const double rate;
    std::mt19937_64 random;
    uint64_t left;
};
