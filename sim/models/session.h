// What a run is, as it is told when it starts.
//
// The file has a line "NAME NUMBERS..." for each of:
//   gpus, threads, lane_threads (of each GPU), quantum, epoch    fill, alone, stall, timeout, late_cycles, doorbells    phase_NAME: its first command
//   switch_planes: lanes of the switch between the GPUs (`switch_plane.h`), if there is one
//   flits, messages: receiving GPU, its port, sending GPU, its port, cycles from output to input; lanes of a switch have
//     the numbers behind the last GPU, and a port for each of them
//   bit_errors: how many of 10^12 bits on wires are wrong, seed
//   fault_campaign, sequences: of a model built for them (`fault_server.h`, `sequence_server.h`)
//   link_rate: GPU, its port, bytes a cycle that each lane of the link from it carries, in 65536ths: less than the node's
//   mirrored: receiving GPU, its port whose flits are rewritten (`mirror.h`), rank that they then come from
//   mirrored_array: first sector, sectors of a chunk, chunks, first wg, wg numbers of a chunk    waves: the file is to be written
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Numbers = std::vector<uint64_t>;

struct Session {
    std::map<std::string, std::vector<Numbers>> lines;

    explicit Session(const char* name) {
        std::ifstream file{name};
        for (std::string line; std::getline(file, line);) {
            std::istringstream words{line};
            std::string key;
            words >> key;
            Numbers& numbers = lines[key].emplace_back();
            for (uint64_t number; words >> number;) numbers.push_back(number);
        }
    }

    uint64_t number(const std::string& name) const { return lines.at(name).at(0).at(0); }

    const std::vector<Numbers>& all(const std::string& name) const {
        static const std::vector<Numbers> none;
        const auto found = lines.find(name);
        return found == lines.end() ? none : found->second;
    }
};

}  // namespace
