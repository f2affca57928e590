// Collectives that sequences are made of, each with its data.
//
// Folder jobN of a job holds, by rank R, what a run of it reads (plan, steps, waits, source, gathered, initial, gates), and
//   commands R.hex: of the host, without epoch and arm    doorbells R.hex: the same, an end behind each ring
//   expected R.hex: sectors of the results, in the order of the lines of job.txt:
//   span SECTORS: of all arrays, from the first sector of the memory on
//   gathered FIRST SECTORS PITCH LAST_BYTES: as for `gathered_checker.sv`
//   result RANK FIRST SECTORS PITCH LAST_BYTES: in rows of `pitch` sectors, of whose last one so many bytes count
#pragma once

#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "model_state.h"

namespace {

constexpr uint64_t SECTOR = 32;

// Words of a memory: runs of bytes, each from one of its words on.
class Image {
public:
    // The file `path` as $readmemh reads it, into words of so many bytes; none if it is not there.
    Image() = default;
    Image(const std::string& path, size_t width) : width{width} {
        std::ifstream file{path};
        for (std::string line; std::getline(file, line);) {
            if (line.empty()) continue;
            if (line[0] == '@' || runs.empty()) runs.push_back({0, {}});
            if (line[0] == '@')
                runs.back().first = std::stoull(line.substr(1), nullptr, 16);
            else
                append(line);
        }
    }

    void put(const Variable& memory) const {
        for (const auto& [first, bytes] : runs) {
            if ((first + bytes.size() / width) > memory.words) throw std::runtime_error("a job has more than a model");
            std::memcpy(memory.data + first * width, bytes.data(), bytes.size());
        }
    }

    const std::vector<unsigned char>& bytes() const {
        static const std::vector<unsigned char> none;
        return runs.empty() ? none : runs.front().second;
    }

private:
    void append(const std::string& line) {
        auto& bytes = runs.back().second;
        const size_t start = bytes.size();
        bytes.resize(start + width, 0);
        size_t place = 0;
        for (size_t n = line.size(); n-- > 0; ++place) {
            const char digit = line[n];
            const int value = digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10;
            if (place / 2 < width) bytes[start + place / 2] |= static_cast<unsigned char>(value << 4 * (place & 1));
        }
    }

    size_t width = 1;
    std::vector<std::pair<uint64_t, std::vector<unsigned char>>> runs;
};

struct Result {
    uint64_t first, sectors, pitch, last_bytes;
};

// A collective with its data, of one GPU.
struct Part {
    Image plan, steps, waits, gates, source, gathered, initial, expected;
    std::vector<uint64_t> commands;
    std::vector<std::vector<uint64_t>> doorbells;
    std::vector<Result> results;
};

struct SequenceJob {
    uint64_t span = 0;
    std::vector<uint64_t> gathered;
    std::vector<Part> parts;
};

// Of each memory, bytes of a word of a file.
struct WordBytes {
    size_t plan, steps, waits, gates, source, gathered, memory;
};

Part read_part(const std::string& folder, const std::string& rank, const Image& gates, const WordBytes& words) {
    const auto image = [&](const std::string& name, size_t width) { return Image{folder + name + rank + ".hex", width}; };
    const auto commands = [&](const std::string& name) {
        std::vector<uint64_t> found;
        std::ifstream file{folder + name + rank + ".hex"};
        for (uint64_t command; file >> std::hex >> command;) found.push_back(command);
        return found;
    };
    Part part;
    part.plan = image("plan", words.plan);
    part.steps = image("steps", words.steps);
    part.waits = image("waits", words.waits);
    part.gates = gates;
    part.source = image("source", words.source);
    part.gathered = image("gathered", words.gathered);
    part.initial = image("initial", words.memory);
    part.expected = image("expected", words.memory);
    part.commands = commands("commands");
    for (const uint64_t command : commands("doorbells")) {
        if (part.doorbells.empty() || part.doorbells.back().back() == 0) part.doorbells.emplace_back();
        part.doorbells.back().push_back(command);
    }
    return part;
}

SequenceJob read_job(const std::string& folder, size_t gpus, const WordBytes& words) {
    SequenceJob job;
    const Image gates{folder + "gates.hex", words.gates};
    for (size_t rank = 0; rank < gpus; ++rank) job.parts.push_back(read_part(folder, std::to_string(rank), gates, words));
    std::ifstream file{folder + "job.txt"};
    if (!file) throw std::runtime_error("there is no job " + folder);
    for (std::string line; std::getline(file, line);) {
        std::istringstream text{line};
        std::string key;
        text >> key;
        std::vector<uint64_t> numbers;
        for (uint64_t value; text >> value;) numbers.push_back(value);
        if (key == "span") job.span = numbers.at(0);
        if (key == "gathered") job.gathered = numbers;
        if (key == "result")
            job.parts.at(numbers.at(0)).results.push_back({numbers.at(1), numbers.at(2), numbers.at(3), numbers.at(4)});
    }
    return job;
}

}  // namespace
