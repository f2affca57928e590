// What runs in which something goes wrong come to, and what is kept of them in memory that all processes of a campaign share.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

#include "history.h"

namespace {

// What a run was in the end. `fired`: what was to go wrong on a wire has; `harmed`: the memory was written outside of what
// is modelled, or given a command too early; `reported`, and `late` in the collective after an abort: bits of `Report`;
// `converged`: the cycle in which all state was as without a fault, 0: never; `drained`: cycles from an abort until
// nothing of its epoch was left; `corrected`: what the counters of corrections say.
struct Facts {
    bool finished = false, fired = true, harmed = false;
    unsigned reported = 0, late = 0;
    uint64_t wrong_sectors = 0, wrong_registers = 0, converged = 0, end = 0, drained = 0;
    int64_t corrected = 0;

    std::string line() const {
        std::ostringstream text;
        text << finished << " " << fired << " " << harmed << " " << reported << " " << late << " " << wrong_sectors << " "
             << wrong_registers << " " << converged << " " << end << " " << drained << " " << corrected;
        return text.str();
    }
};
// States that runs with something wrong went through, and what came of them: one that comes to the same state ends the
// same way. In memory that all processes of a campaign share, of which one at a time writes.
class Outcomes {
public:
    // A state by digests of all but the memories, and of the memories; `corrected` until then.
    struct State {
        uint64_t key, memories;
        int64_t corrected;
    };
    struct Entry {
        State state;
        Facts facts;
    };

    // For so many runs.
    explicit Outcomes(size_t runs) {
        while (count < 2 * MOST * runs) count *= 2;
        const size_t words = (sizeof(Entry) + sizeof(uint64_t) - 1) / sizeof(uint64_t);
        entries = reinterpret_cast<Entry*>(shared_words(count * words));
    }

    // Kept for a state with `key`, or null.
    const Entry* find(uint64_t key) const {
        const Entry& found = entries[place(key)];
        return found.state.key ? &found : nullptr;
    }

    void add(const State& state, const Facts& facts) {
        Entry& entry = entries[place(state.key)];
        if (!entry.state.key) entry = {state, facts};
    }

    // States that are kept of a run.
    static constexpr size_t MOST = 16;

private:
    size_t place(uint64_t key) const {
        size_t n = key % count;
        while (entries[n].state.key && entries[n].state.key != key) n = (n + 1) % count;
        return n;
    }

    size_t count = 1;
    Entry* entries;
};

// What the run without a fault was at every multiple of `grid` cycles: values of a row each, in memory that all processes
// of a campaign share.
class Rows {
public:
    Rows(size_t width, uint64_t grid, uint64_t cycles)
        : width{width}, grid{grid}, count{cycles / grid}, place{shared_words(width * count)} {}

    uint64_t* at(uint64_t cycle) const {
        if (cycle / grid >= count) throw std::runtime_error("a run is longer than what can be kept of it");
        return place + cycle / grid * width;
    }

private:
    const size_t width;
    const uint64_t grid, count;
    uint64_t* const place;
};

}  // namespace
