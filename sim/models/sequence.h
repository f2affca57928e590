// What a sequence of collectives is.
//
// Lines of sequences.txt are "NUMBER SEED STALL" and for each collective "~|- JOB ABORTS {GPU CYCLE}": with - it begins when
// all have ended the one before, with ~ on each GPU by itself. A GPU's abort is written so many cycles after it was armed.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct AbortAt {
    size_t gpu;
    uint64_t cycle;
};

struct Item {
    bool alone;
    size_t job;
    std::vector<AbortAt> aborts;
};

struct Sequence {
    std::string number;
    uint64_t seed = 0, stall = 0;
    std::vector<Item> items;
};

// Of so many `jobs`.
Sequence parsed(const std::string& line, size_t jobs) {
    std::istringstream words{line};
    Sequence made;
    words >> made.number >> made.seed >> made.stall;
    std::string mode;
    while (words >> mode) {
        Item& item = made.items.emplace_back();
        size_t aborts = 0;
        item.alone = mode == "~";
        words >> item.job >> aborts;
        item.aborts.resize(aborts);
        for (AbortAt& at : item.aborts) words >> at.gpu >> at.cycle;
        if (!words || item.job >= jobs) throw std::runtime_error("a sequence cannot be read: " + line);
    }
    return made;
}

}  // namespace
