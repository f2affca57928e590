// What a campaign of faults looks at, and what is to go wrong, as campaign.txt says.
//
// Lines of the file campaign.txt, where a name is that of a variable, a GPU a number:
//   register NAME                              must be in the end what it is without a fault
//   statistic NAME                             the same, if a bit of it was flipped: others may count otherwise
//   counter NAME                               counts what hardware has corrected
//   recorded NAME {BITS}                       only records; if BITS is given, only those of its first byte
//   sum NAME                                   of those, one to which something is added and which nothing sets
//   dead END                                   variables whose names end so are not 0 when a link is dead
//   result GPU CHANNEL FIRST COUNT             sectors of the result
//   inject NUMBER CYCLE flip GPU NAME WORD BIT
//   inject NUMBER CYCLE wire {GPU PORT flits|messages {damage|drop|double|reorder|cut SKIP BIT} ... and} ...
//   inject NUMBER CYCLE abort GPU
//   inject NUMBER CYCLE nothing
#pragma once

#include <fstream>
#include <set>
#include <sstream>

#include "digest.h"
#include "model_state.h"

namespace {

const std::string ARRAY = ".array.sectors";

// A variable of a GPU.
struct Held {
    size_t gpu;
    const Variable* item;

    bool operator==(const Variable* other) const { return item == other; }
    uint64_t digest() const {
        Digest made;
        made.add(item->data, item->bytes * item->words);
        return made.value();
    }
    // Of one that is a number.
    uint64_t value() const {
        uint64_t number = 0;
        std::memcpy(&number, item->data, std::min<size_t>(sizeof number, item->bytes));
        return number;
    }
};

struct Sector {
    size_t gpu;
    const Variable* memory;
    uint64_t number;

    uint64_t digest() const {
        Digest made;
        made.add(memory->data + number * memory->bytes, memory->bytes);
        return made.value();
    }
};

struct Injection {
    std::string number, kind;
    uint64_t cycle = 0;
    std::vector<std::string> words;
};

// One that only records, or whose `bits` of the first byte do.
struct Recorded {
    std::string name;
    unsigned char bits;
};

// The lists of campaign.txt; `state`: all variables, by GPU and name; `sums`: statistics that grow by what is counted.
struct FaultPlan {
    explicit FaultPlan(const std::vector<std::map<std::string, Variable>>& state) : state{state} {
        std::ifstream file{"campaign.txt"};
        for (std::string line; std::getline(file, line);) {
            std::istringstream words{line};
            read(words);
        }
        if (dead.empty()) throw std::runtime_error("nothing tells of dead links");
    }

    const Variable& variable(size_t gpu, const std::string& name) const {
        const auto found = state.at(gpu).find(name);
        if (found == state.at(gpu).end()) throw std::runtime_error("there is no state " + name);
        return found->second;
    }

    const std::vector<std::map<std::string, Variable>> state;
    std::vector<Held> registers, statistics, counters;
    std::vector<Recorded> recorded;
    std::set<const Variable*> sums;
    std::vector<const Variable*> dead;
    std::vector<Sector> sectors;
    std::vector<Injection> injections;

private:
    void read(std::istream& words) {
        std::string key, name;
        words >> key;
        if (key == "inject") {
            Injection& made = injections.emplace_back();
            words >> made.number >> made.cycle >> made.kind;
            for (std::string word; words >> word;) made.words.push_back(word);
        } else if (key == "result") {
            uint64_t gpu, channel, first, count;
            words >> gpu >> channel >> first >> count;
            const Variable& memory = variable(gpu, "gpu_shell.gpu.hbm_" + std::to_string(channel) + ARRAY);
            for (uint64_t n = first; n < first + count; ++n) sectors.push_back({gpu, &memory, n});
        } else if (key == "recorded") {
            unsigned bits = 0;
            words >> name >> bits;
            recorded.push_back({name, static_cast<unsigned char>(bits)});
        } else if (key == "dead") {
            words >> name;
            add_ending(name);
        } else if (key == "sum") {
            words >> name;
            for (size_t gpu = 0; gpu < state.size(); ++gpu) sums.insert(&variable(gpu, name));
        } else {
            words >> name;
            const std::map<std::string, std::vector<Held>*> lists{
                {"register", &registers}, {"statistic", &statistics}, {"counter", &counters}};
            auto& list = *lists.at(key);
            for (size_t gpu = 0; gpu < state.size(); ++gpu) list.push_back({gpu, &variable(gpu, name)});
        }
    }

    void add_ending(const std::string& end) {
        for (const auto& of_gpu : state)
            for (const auto& [name, item] : of_gpu)
                if (ends_so(name, end)) dead.push_back(&item);
    }
};

}  // namespace
