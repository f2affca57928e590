// A GPU whose lanes are models of their own (`Vlane`, compiled once), beside that of all the rest (`Vgpu`); to the outside one model.
//
// An edge of the clock reaches all of them before anything moves between them; `sim/models/lane_bus.py` says what then
// moves when. Words of the lanes' link ports lie behind those of the rest, lane by lane.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "Vgpu.h"
#include "Vlane.h"
#include "gpu_ports.h"
#include "team.h"

// The bits of a packed port, which Verilator keeps in words, or in an integer where they are at most 64.
template <std::size_t WORDS>
char* bits_of(VlWide<WORDS>& port) {
    return reinterpret_cast<char*>(port.data());
}
template <typename Integer>
char* bits_of(Integer& port) {
    return reinterpret_cast<char*>(&port);
}

class GpuOfLanes {
public:
    GpuOfLanes(VerilatedContext* context, const char* name) : context{context}, rest{context, name} {
        for (int n = 0; n < ports::LANES; ++n) {
            lanes.push_back(std::make_unique<Vlane>(context, (std::string{name} + ".lane" + std::to_string(n)).c_str()));
            lanes.back()->number = n;
        }
    }

    // From here on `threads`, with the calling one, share the lanes.
    void share(int threads) {
        if (threads > 1) team = std::make_unique<Team>(threads);
    }

    void eval() { clk ? rise() : fall(); }

    void final() {
        rest.final();
        for (const auto& lane : lanes) lane->final();
    }

    uint8_t clk = 0, rst = 0, rank = 0;
    std::array<uint32_t, ports::REST_INPUTS + ports::LANES * ports::LANE_INPUTS> inputs{};
    std::array<uint32_t, ports::REST_OUTPUTS + ports::LANES * ports::LANE_OUTPUTS> outputs{};

private:
    static constexpr size_t BYTES = sizeof(uint32_t);

    // Nothing moves between the rest and the lanes before all of them have seen the edge. The rest takes longest, so it
    // comes first.
    void rise() {
        each(1 + ports::LANES, [this](int part) { part == 0 ? rise_rest() : rise_lane(part - 1); });
    }

    void rise_rest() {
        rest.rst = rst;
        std::memcpy(bits_of(rest.inputs), inputs.data(), ports::REST_INPUTS * BYTES);
        // Gates of clocks look at it before the edge.
        rest.take_late = 1;
        rest.eval();
        rest.take_late = 0;
        rest.clk = 1;
        rest.eval();
    }

    void rise_lane(int n) {
        Vlane& lane = *lanes[n];
        const int first = ports::REST_INPUTS + n * ports::LANE_INPUTS;
        lane.rst = rst;
        std::memcpy(bits_of(lane.wires_in), &inputs[first], ports::LANE_INPUTS * BYTES);
        lane.clk = 1;
        lane.eval();
    }

    void fall() {
        for (int n = 0; n < ports::LANES; ++n)
            std::memcpy(bits_of(rest.early) + n * ports::EARLY * BYTES, bits_of(lanes[n]->early), ports::EARLY * BYTES);
        rest.rank = rank;
        rest.clk = 0;
        rest.eval();
        each(ports::LANES, [this](int n) {
            Vlane& lane = *lanes[n];
            std::memcpy(bits_of(lane.down), bits_of(rest.down) + n * ports::DOWN * BYTES, ports::DOWN * BYTES);
            lane.clk = 0;
            lane.eval();
            std::memcpy(bits_of(rest.late) + n * ports::LATE * BYTES, bits_of(lane.late), ports::LATE * BYTES);
            const int first = ports::REST_OUTPUTS + n * ports::LANE_OUTPUTS;
            std::memcpy(&outputs[first], bits_of(lane.wires_out), ports::LANE_OUTPUTS * BYTES);
        });
        std::memcpy(outputs.data(), bits_of(rest.outputs), ports::REST_OUTPUTS * BYTES);
    }

    template <typename Part>
    void each(int parts, const Part& part) {
        if (!team)
            for (int n = 0; n < parts; ++n) part(n);
        else
            team->each(parts, [&](int n) {
                Verilated::threadContextp(context);
                part(n);
            });
    }

    VerilatedContext* context;
    Vgpu rest;
    std::vector<std::unique_ptr<Vlane>> lanes;
    std::unique_ptr<Team> team;
};

using GpuModel = GpuOfLanes;
inline void share(GpuModel& gpu, int threads) { gpu.share(threads); }
