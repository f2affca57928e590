// What stands around the node of a GPU, as C++ sees and changes it by the back door.
#pragma once

#include <random>
#include <tuple>

#include "model_state.h"
#include "sequence_job.h"

namespace {

// What stands around the node of a GPU.
class Around {
public:
    explicit Around(Gpu& gpu) : gpu{gpu}, state{found_in(gpu)} {
        memory = &find("hbm_0.array.sectors");
        plan = &find("gemm.plan.memory");
        steps = &find("gemm.steps.memory");
        waits = &find("gemm.gates.waits.memory");
        gates = &find("gemm.gates.gates.places.memory");
        const std::string lane = "gemm.lanes.lane_0.";
        source = &find(lane + "operands.memory");
        offered = &find(lane + "request_valid");
        const std::string checker = lane + "checker.";
        owners = &find(checker + "owners");
        first = &find(checker + "first");
        sectors = &find(checker + "sectors");
        pitch = &find(checker + "pitch");
        last_mask = &find(checker + "last_mask");
        wrong = &find(checker + "wrong");
        const std::set<const Variable*> loaded{plan, steps, waits, gates, source, owners};
        for (const auto& [name, item] : state)
            if (name.rfind(PLACE + "gemm.", 0) == 0 && !loaded.count(&item)) {
                const auto bytes = item.bytes * item.words;
                const bool counts = name.find("gates.gates.") != std::string::npos && item.words > 1;
                rest.push_back({&item, {item.data, item.data + bytes}, counts});
            }
    }

    // Whether the compute units offer an access that the node has not taken yet.
    bool offers() const { return *offered->data; }

    // Compute units as after reset: whatever they were doing, they go on with nothing. A seeded fault `keeps_counts`: their
    // gates are as far open as they were.
    void kill(bool keeps_counts) {
        for (const auto& [item, bytes, counts] : rest)
            if (!(counts && keeps_counts)) std::memcpy(item->data, bytes.data(), bytes.size());
        settle(gpu);
    }

    // Plans of a job for the compute units; its data in the memory, and garbage beside it.
    void lay(const SequenceJob& job, const Part& part, uint64_t seed) {
        std::memset(gates->data, 0, gates->bytes * gates->words);
        part.plan.put(*plan);
        part.steps.put(*steps);
        part.waits.put(*waits);
        part.gates.put(*gates);
        part.source.put(*source);
        part.gathered.put(*owners);
        const std::vector<uint64_t>& told = job.gathered;
        set(*first, told.empty() ? 0 : told[0]);
        set(*sectors, told.empty() ? 0 : told[1]);
        set(*pitch, told.empty() ? 1 : told[2]);
        std::memset(last_mask->data, 0, last_mask->bytes);
        std::memset(last_mask->data, 0xff, told.empty() ? SECTOR : told[3]);
        std::mt19937_64 garbage{seed};
        for (uint64_t n = 0; n < job.span * SECTOR; n += sizeof(uint64_t)) {
            const uint64_t word = garbage();
            std::memcpy(memory->data + n, &word, sizeof word);
        }
        part.initial.put(*memory);
        settle(gpu);
    }

    // Sectors that are not what is expected.
    uint64_t differing(const Part& part) const {
        uint64_t count = 0;
        const unsigned char* right = part.expected.bytes().data();
        for (const Result& result : part.results)
            for (uint64_t n = 0; n < result.sectors; ++n, right += SECTOR) {
                const uint64_t bytes = n % result.pitch == result.pitch - 1 ? result.last_bytes : SECTOR;
                count += std::memcmp(memory->data + (result.first + n) * SECTOR, right, bytes) != 0;
            }
        return count;
    }

    uint64_t wrong_reads() const { return *reinterpret_cast<const uint32_t*>(wrong->data); }

    WordBytes word_bytes() const {
        const auto of = [](const Variable* item) { return static_cast<size_t>(item->bytes); };
        return {of(plan), of(steps), of(waits), of(gates), of(source), of(owners), of(memory)};
    }

private:
    const Variable& find(const std::string& name) const {
        const auto found = state.find(PLACE + name);
        if (found == state.end()) throw std::runtime_error("there is no state " + PLACE + name);
        return found->second;
    }

    // By names without what sets an instance apart from a signal that is called so.
    static std::map<std::string, Variable> found_in(Gpu& gpu) {
        std::map<std::string, Variable> found;
        for (const auto& [name, item] : variables(gpu)) {
            std::string clean;
            for (size_t n = 0; n < name.size(); ++n) {
                if (name[n] == '$')
                    while (n + 1 < name.size() && std::isdigit(static_cast<unsigned char>(name[n + 1]))) ++n;
                else
                    clean += name[n];
            }
            found[clean] = item;
        }
        return found;
    }

    static void set(const Variable& item, uint64_t value) { std::memcpy(item.data, &value, item.bytes); }

    static inline const std::string PLACE = "gpu_shell.gpu.";

    Gpu& gpu;
    const std::map<std::string, Variable> state;
    const Variable *memory, *plan, *steps, *waits, *gates, *source, *owners, *first, *sectors, *pitch, *last_mask, *wrong;
    const Variable* offered;
    // State after reset, and whether it is what gates have counted.
    std::vector<std::tuple<const Variable*, std::vector<unsigned char>, bool>> rest;
};

}  // namespace
