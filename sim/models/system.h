// A system: GPUs compiled once (`GpuModel`), the wires between their link ports, and the host that programs them.
//
// What a GPU does reaches another one a link's latency later, so each is advanced by itself for a quantum of cycles up to
// that, on whichever thread is free; wires (`wire.h`) hold what is under way. The host works on one GPU at a time and is
// stepped with it, in quanta in which it cannot turn to another one (`host.h`). Flags of all GPUs are looked at every
// `epoch` cycles, which no number of threads and no quantum changes. So every bit is the same however a system is advanced.
// The host's program is program.hex, its answers go to answers.txt.
#pragma once

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bit_errors.h"
#include "digest.h"
#include "gpu.h"
#include "session.h"
#include "switch_model.h"
#include "tamper.h"
#include "team.h"
#include "wire.h"
#if VM_TRACE
#include "verilated_fst_c.h"
#endif

namespace {

constexpr int FLIT_WORDS = ports::LINK_OUT[0].words(), MESSAGE_WORDS = ports::MESSAGES_OUT[0].words();
// Cycles of all GPUs together from which on more than one thread is worth waking.
constexpr uint64_t SHARED = 64;

std::vector<uint64_t> read_program() {
    std::vector<uint64_t> commands;
    std::ifstream file{"program.hex"};
    for (uint64_t command; file >> std::hex >> command;) commands.push_back(command);
    return commands;
}

class System {
public:
    static constexpr uint64_t NEVER = std::numeric_limits<uint64_t>::max();

    System(const Session& session, int argc, char** argv)
        : session{session}, quantum{session.number("quantum")}, epoch{session.number("epoch")},
          team{static_cast<int>(session.number("threads"))}, answers{std::fopen("answers.txt", "w")},
          host{read_program(), answers} {
        if (!answers) throw std::runtime_error("answers.txt cannot be written");
        gpus.resize(session.number("gpus"));
        // Waves of all are one file, which takes one context; otherwise threads have nothing in common.
        std::shared_ptr<VerilatedContext> common;
        if (waves_wanted()) common = new_context(argc, argv);
        const auto& switched = session.all("switch_planes");
        planes.resize(switched.empty() ? 0 : switched.at(0).at(0));
        team.each(static_cast<int>(gpus.size() + planes.size()), [&](int number) {
            const auto context = common ? common : new_context(argc, argv);
            Verilated::threadContextp(context.get());
            const int rank = number, plane = number - static_cast<int>(gpus.size());
            if (plane >= 0) {
                planes[plane] = std::make_unique<SwitchPlane>(plane, static_cast<int>(gpus.size()), context);
                return;
            }
            gpus[rank] = std::make_unique<Gpu>(rank, context);
            share(gpus[rank]->model, static_cast<int>(session.number("lane_threads")));
        });
        for (const Numbers& line : session.all("mirrored_array")) {
            const auto at = [&](int place) { return static_cast<int64_t>(line.at(place)); };
            mirror.arrays.push_back({at(0), at(1), at(2), at(3), at(4)});
        }
        const Numbers& errors = session.all("bit_errors").at(0);
        rate = static_cast<double>(errors.at(0)) * 1e-12;
        seed = errors.at(1);
        join("flits", FLIT_WORDS);
        join("messages", MESSAGE_WORDS);
        for (const Numbers& end : session.all("mirrored"))
            for (Input& input : gpus.at(end.at(0))->arriving)
                if (input.first == ports::LINK_IN[end.at(1)].low / 32) input.mirrored = static_cast<int64_t>(end.at(2));
        for (const Numbers& line : session.all("link_rate"))
            set_bits(gpus.at(line.at(0))->inputs(), ports::RATES[line.at(1)], line.at(2));
        open_waves();
        // What is at rest before the first edge of the clock.
        team.each(static_cast<int>(gpus.size()), [&](int rank) {
            Verilated::threadContextp(gpus[rank]->context.get());
            gpus[rank]->model.eval();
        });
        for (const auto& plane : planes) {
            Verilated::threadContextp(plane->context.get());
            plane->settle();
        }
    }

    ~System() {
        for (const auto& gpu : gpus) {
            Verilated::threadContextp(gpu->context.get());
            gpu->model.final();
        }
        for (const auto& plane : planes) plane->final();
#if VM_TRACE
        if (waves) waves->close();
#endif
        std::fclose(answers);
    }

    void keep_answers() {
        if (std::fflush(answers) != 0 || std::ferror(answers)) throw std::runtime_error("answers.txt cannot be written");
    }

    void reset() {
        advance(5);
        for (const auto& gpu : gpus) gpu->model.rst = 0;
        for (const auto& plane : planes) plane->end_reset();
        advance(2);
    }

    // Run the register accesses of `phase`.
    void program(const std::string& phase) {
        host.set_start(session.number("phase_" + phase));
        host.set_go(true);
        advance(1);
        host.set_go(false);
        advance(3);
        for (const uint64_t end = now + session.number("timeout"); !host.idle() && now < end;)
            advance(std::min(host.lookahead(), end - now));
        if (!host.idle()) throw std::runtime_error("the register accesses of phase " + phase + " did not complete");
    }

    // Hold input `field` of all GPUs high for one clock cycle, and let the outputs follow it.
    void pulse(Field field) {
        set(field, 1);
        advance(1);
        set(field, 0);
        advance(3);
    }

    void set(Field field, uint64_t value) {
        for (const auto& gpu : gpus) set_bits(gpu->inputs(), field, value);
    }

    void set_stall(uint64_t probability) {
        set(ports::STALL, probability);
        for (const auto& plane : planes) plane->set_stall(probability);
        host.set_stall(static_cast<uint32_t>(probability));
    }

    bool all_done() const {
        return std::all_of(gpus.begin(), gpus.end(), [](const auto& gpu) { return gpu->done(); });
    }
    bool all_quiet() const {
        return std::none_of(gpus.begin(), gpus.end(), [](const auto& gpu) { return gpu->is(ports::BUSY); });
    }
    bool trouble() const {
        return host.refused() || stray() ||
               std::any_of(gpus.begin(), gpus.end(), [](const auto& gpu) { return gpu->trouble; });
    }
    void forget_trouble() {
        for (const auto& gpu : gpus) gpu->trouble = gpu->bad();
    }

    // Advance until `condition` holds at the end of an epoch, there is trouble in one, or the time is over; whether it holds.
    bool wait(bool (System::*condition)() const) {
        forget_trouble();
        for (const uint64_t end = now + session.number("timeout"); !(this->*condition)() && !trouble() && now < end;)
            advance(std::min(epoch, end - now));
        return (this->*condition)();
    }

    void advance(uint64_t cycles) {
        for (const uint64_t end = now + cycles; now < end;) {
            while (now >= stop) at_stop();
            uint64_t most = std::min({quantum, end - now, stop - now});
            if (!host.idle()) most = std::min(most, host.lookahead());
            step(most);
        }
    }

    uint64_t cycle() const { return now; }

    // `act` is called before cycle `stop` is simulated, and sets a later one.
    void on_stop(std::function<void()> act) { at_stop = std::move(act); }
    void stop_at(uint64_t cycle) { stop = cycle; }

    const std::vector<std::unique_ptr<Gpu>>& all() const { return gpus; }
    // From now on each GPU has a host of its own, and the one of all does nothing.
    void give_hosts(std::vector<Host*> own) { hosts = std::move(own); }
    bool refused() const { return host.refused(); }

    // Of what the wires carry and the host is doing.
    void add_to(Digest& digest) const {
        for (const auto& wire : wires) wire->add_to(digest);
        digest.add(host);
    }

    // Bits that arrived other than they were sent.
    uint64_t flipped() const {
        uint64_t sum = 0;
        for (const auto& gpu : gpus)
            for (const Output& output : gpu->leaving) sum += output.errors.flipped;
        for (const auto& plane : planes)
            for (const Output& output : plane->leaving) sum += output.errors.flipped;
        return sum;
    }

    // A packet came to the switch that was for nobody.
    bool stray() const {
        return std::any_of(planes.begin(), planes.end(), [](const auto& plane) { return plane->stray(); });
    }

    // By lane of the switch, cycles in which each link from it moved bytes.
    std::string switch_busy() const {
        std::string list;
        for (const auto& plane : planes) {
            std::string row;
            for (const uint64_t cycles : plane->busy()) row += (row.empty() ? "" : ", ") + std::to_string(cycles);
            list += (list.empty() ? "[" : ", [") + row + "]";
        }
        return "[" + list + "]";
    }

    std::string statuses() const {
        std::string list;
        for (const auto& gpu : gpus) list += (list.empty() ? "\"" : ", \"") + gpu->status() + "\"";
        return "[" + list + "]";
    }

private:
    static std::shared_ptr<VerilatedContext> new_context(int argc, char** argv) {
        auto context = std::make_shared<VerilatedContext>();
        // Verilator's own pool of threads has nothing to do.
        context->threads(1);
        context->commandArgs(argc, argv);
        return context;
    }

    // A GPU, or behind the last of them a lane of the switch.
    WireEnds& ends(uint64_t number) {
        if (number < gpus.size()) return *gpus[number];
        return *planes.at(number - gpus.size());
    }

    void join(const std::string& kind, int words) {
        const bool flits = kind == "flits";
        for (const Numbers& line : session.all(kind)) {
            WireEnds &receiver = ends(line.at(0)), &sender = ends(line.at(2));
            if (line.at(4) < quantum) throw std::runtime_error("a quantum is longer than the delay of a wire");
            Wire* const wire = wires.emplace_back(std::make_unique<Wire>(line.at(4), words)).get();
            receiver.arriving.push_back({receiver.place(flits, true, line.at(1)).low / 32, words, wire});
            const Field port = sender.place(flits, false, line.at(3));
            sender.leaving.push_back({port.low / 32, port.width - 1, wire, BitErrors{rate, seed << 32 | wires.size()}});
        }
    }

    bool waves_wanted() const { return !session.all("waves").empty(); }

    void open_waves() {
        if (!waves_wanted()) return;
#if VM_TRACE
        gpus[0]->context->traceEverOn(true);
        waves = std::make_unique<VerilatedFstC>();
        for (const auto& gpu : gpus) gpu->model.trace(waves.get(), 99);
        for (const auto& plane : planes) plane->trace(waves.get());
        waves->set_time_unit("1ns");
        waves->set_time_resolution("1ps");
        waves->open("dump.fst");
#else
        throw std::runtime_error("this model was built without waves");
#endif
    }

    void dump(uint64_t picoseconds) {
#if VM_TRACE
        gpus[0]->context->time(picoseconds);
        waves->dump(picoseconds);
#endif
    }

    void step(uint64_t cycles) {
        const int target = host.target();
        if (target != worked_on) {
            gpus[worked_on]->drive({});
            worked_on = target;
        }
        const auto host_of = [&](int rank) { return !hosts.empty() ? hosts[rank] : rank == target ? &host : nullptr; };
        const int ranks = static_cast<int>(gpus.size()), count = ranks + static_cast<int>(planes.size());
        if (waves_wanted()) {
            for (uint64_t cycle = now; cycle < now + cycles; ++cycle) {
                dump(1000 * cycle);
                for (int rank = 0; rank < ranks; ++rank) gpus[rank]->rise(cycle, host_of(rank), mirror);
                for (const auto& plane : planes) plane->rise(cycle);
                dump(1000 * cycle + 500);
                for (const auto& gpu : gpus) gpu->fall(cycle);
                for (const auto& plane : planes) plane->fall(cycle);
            }
        } else {
            const auto part = [&](int number) {
                if (number >= ranks) {
                    SwitchPlane& plane = *planes[number - ranks];
                    Verilated::threadContextp(plane.context.get());
                    for (uint64_t cycle = now; cycle < now + cycles; ++cycle) {
                        plane.rise(cycle);
                        plane.fall(cycle);
                    }
                    return;
                }
                Gpu& gpu = *gpus[number];
                Verilated::threadContextp(gpu.context.get());
                for (uint64_t cycle = now; cycle < now + cycles; ++cycle) {
                    gpu.rise(cycle, host_of(number), mirror);
                    gpu.fall(cycle);
                }
            };
            if (team.members() == 1 || cycles * count < SHARED)
                for (int number = 0; number < count; ++number) part(number);
            else
                team.each(count, part);
        }
        for (const auto& wire : wires) wire->exchange();
        now += cycles;
    }

    const Session& session;
    const uint64_t quantum, epoch;
    Team team;
    std::FILE* const answers;
    Host host;
    std::vector<Host*> hosts;
    Mirror mirror;
    double rate = 0;
    uint64_t seed = 0;
    std::vector<std::unique_ptr<Gpu>> gpus;
    std::vector<std::unique_ptr<SwitchPlane>> planes;
    std::vector<std::unique_ptr<Wire>> wires;
#if VM_TRACE
    std::unique_ptr<VerilatedFstC> waves;
#endif
    uint64_t now = 0, stop = NEVER;
    std::function<void()> at_stop;
    int worked_on = 0;
};

}  // namespace
