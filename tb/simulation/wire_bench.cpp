// Models in a ring, each advanced by itself, on wires and by a team as the GPUs of a system are. A model is a number that
// changes every cycle by what arrives, and is sent on when it is of a kind.
//
// Called as `wire_bench MODELS THREADS QUANTUM DELAY CYCLES FAULT`; prints each model's number at the end. FAULT: `none`;
// `late`, what is sent in a quantum is exchanged after the next one; `thrown`, a part throws.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "team.h"
#include "wire.h"

int main(int, char** argv) {
    const int models = std::atoi(argv[1]);
    Team team{std::atoi(argv[2])};
    const uint64_t quantum = std::atoll(argv[3]), delay = std::atoll(argv[4]), cycles = std::atoll(argv[5]);
    const std::string fault = argv[6];
    std::vector<uint32_t> numbers(models);
    std::vector<std::unique_ptr<Wire>> wires;
    for (int n = 0; n < models; ++n) {
        numbers[n] = n;
        wires.push_back(std::make_unique<Wire>(delay, 2));
    }
    try {
        for (uint64_t now = 0, round = 0; now < cycles; now += quantum, ++round) {
            team.each(models, [&](int n) {
                if (fault == "thrown" && n == 1) throw std::runtime_error("a part has failed");
                for (uint64_t cycle = now; cycle < now + quantum && cycle < cycles; ++cycle) {
                    const uint32_t* const arrived = wires[(n + models - 1) % models]->due(cycle);
                    numbers[n] = numbers[n] * 1664525 + 1013904223 + (arrived ? arrived[0] ^ arrived[1] : 0);
                    const uint32_t sent[] = {numbers[n], static_cast<uint32_t>(cycle)};
                    if (numbers[n] >> 31) wires[n]->send(cycle, sent);
                }
            });
            if (fault != "late" || round % 2)
                for (const auto& wire : wires) wire->exchange();
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    for (const uint32_t number : numbers) std::printf("%u\n", number);
    return 0;
}
