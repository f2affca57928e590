// What is joined by wires: a GPU, or a lane of a switch, with the ends of its wires and its packed ports.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bit_errors.h"
#include "bits.h"
#include "mirror.h"
#include "tamper.h"
#include "wire.h"

// A port by which words leave, so many bits behind the one that says whether there are any; the wire that begins there,
// its errors, and what is done to it on purpose, or null.
struct Output {
    int first, bits;
    Wire* wire;
    BitErrors errors;
    Tamper* tamper = nullptr;
};

// A port by which words of a wire come in.
struct Input {
    int first, words;
    Wire* wire;
    // Rank that flits are rewritten to come from; 0 where they are left as they are.
    int64_t mirrored = 0;
    bool filled = false;
};

class WireEnds {
public:
    virtual ~WireEnds() = default;

    // Where the words of `port` lie: of flits or of messages, coming in or leaving.
    virtual Field place(bool flits, bool enters, uint64_t port) const = 0;

    // What arrives in cycle `now`, to `inputs`.
    void take_in(uint64_t now, uint32_t* inputs, const Mirror& mirror) {
        for (Input& input : arriving) {
            uint32_t* const place = inputs + input.first;
            if (const uint32_t* const words = input.wire->due(now)) {
                std::copy(words, words + input.words, place);
                if (input.mirrored) mirror.rewrite(place, input.mirrored);
                input.filled = true;
            } else if (input.filled) {
                std::fill(place, place + input.words, 0);
                input.filled = false;
            }
        }
    }

    // What leaves in cycle `now`, from `outputs`.
    void send_out(uint64_t now, const uint32_t* outputs) {
        for (Output& output : leaving) {
            const uint32_t* const words = outputs + output.first;
            const bool sends = words[0] & 1;
            if (output.tamper)
                output.tamper->send(now, sends ? words : nullptr, *output.wire);
            else if (sends)
                output.errors.damage(output.wire->send(now, words), 1, output.bits);
        }
    }

    std::vector<Input> arriving;
    std::vector<Output> leaving;
};
