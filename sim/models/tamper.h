// What goes wrong on one wire on purpose, by its sender's side: a word is damaged, dropped, sent twice or overtaken by the
// next one, or none gets through any more. Nothing is random here.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "wire.h"

class Tamper {
public:
    enum class Kind { DAMAGE, DROP, DOUBLE, REORDER, CUT };

    // Hits the word that is sent after `skip` others; `bit` of it is flipped, counted behind the one that says whether
    // there is a word.
    struct Fault {
        Kind kind;
        uint64_t skip;
        int bit;
    };

    explicit Tamper(int words) : words{words} {}

    // One after the other: `skip` of the second counts from the first.
    void add(Fault fault) { faults.push_back(fault); }

    // A cycle of the sender: the word that it sends, or null.
    void send(uint64_t now, const uint32_t* word, Wire& wire) {
        if (word) {
            times.push_back(now);
            take({word, word + words}, now);
        }
        if (!overtaken.empty() && now > overtaken_at + TIMEOUT) release();
        if (waiting.empty()) return;
        wire.send(now, waiting.front().data());
        waiting.pop_front();
    }

    // Nothing is to come, and nothing is held back.
    bool done() const { return faults.empty() && waiting.empty() && overtaken.empty() && !cut; }

    // What was to go wrong has.
    bool fired() const { return faults.empty(); }

    // Cycles in which words were sent.
    std::vector<uint64_t> times;

private:
    using Word = std::vector<uint32_t>;
    // Cycles in which a word waits for another one to overtake it.
    static constexpr uint64_t TIMEOUT = 64;

    void take(Word word, uint64_t now) {
        const bool hit = !faults.empty() && faults.front().skip-- == 0;
        if (hit) {
            const Fault fault = faults.front();
            faults.pop_front();
            switch (fault.kind) {
                case Kind::DAMAGE: word[(1 + fault.bit) / 32] ^= uint32_t{1} << ((1 + fault.bit) % 32); break;
                case Kind::DROP: return;
                case Kind::DOUBLE: waiting.push_back(word); break;
                case Kind::REORDER:
                    overtaken = word;
                    overtaken_at = now;
                    return;
                case Kind::CUT: cut = true; break;
            }
        }
        if (cut) return;
        waiting.push_back(word);
        if (!overtaken.empty()) release();
    }

    void release() {
        waiting.push_back(overtaken);
        overtaken.clear();
    }

    const int words;
    std::deque<Fault> faults;
    std::deque<Word> waiting;
    Word overtaken;
    uint64_t overtaken_at = 0;
    bool cut = false;
};
