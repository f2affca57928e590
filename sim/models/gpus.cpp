// A system: GPUs compiled once (`GpuModel`), the wires between their link ports, the host that programs them, and the session
// that a run is.
//
// What a GPU does reaches another one a link's latency later, so each is advanced by itself for a quantum of cycles up to
// that, on whichever thread is free; wires (`wire.h`) hold what is under way. The host works on one GPU at a time and is
// stepped with it, in quanta in which it cannot turn to another one (`host.h`). Flags of all GPUs are looked at every
// `epoch` cycles, which no number of threads and no quantum changes. So every bit is the same however a system is advanced.
//
// Called as `gpus SESSION PLUSARGS...` in the folder of the run. SESSION has a line "NAME NUMBERS..." for each of:
//   gpus, threads, lane_threads (of each GPU), quantum, epoch    fill, alone, stall, timeout, late_cycles, doorbells    phase_NAME: its first command
//   switch_planes: lanes of the switch between the GPUs (`switch_plane.h`), if there is one
//   flits, messages: receiving GPU, its port, sending GPU, its port, cycles from output to input; lanes of a switch have
//     the numbers behind the last GPU, and a port for each of them
//   bit_errors: how many of 10^12 bits on wires are wrong, seed
//   fault_campaign, sequences: of a model built for them (`fault_server.h`, `sequence_server.h`)
//   link_rate: GPU, its port, bytes a cycle that each lane of the link from it carries, in 65536ths: less than the node's
//   mirrored: receiving GPU, its port whose flits are rewritten (`mirror.h`), rank that they then come from
//   mirrored_array: first sector, sectors of a chunk, chunks, first wg, wg numbers of a chunk    waves: the file is to be written
// The host's program is program.hex, its answers go to answers.txt, what the run left to result.json.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "bit_errors.h"
#include "bits.h"
#include "digest.h"
#include "gpu_model.h"
#include "gpu_ports.h"
#include "history.h"
#include "host.h"
#include "mirror.h"
#include "switch_model.h"
#include "tamper.h"
#include "team.h"
#include "verilated.h"
#include "wire.h"
#include "wire_ends.h"
#if VM_TRACE
#include "verilated_fst_c.h"
#endif

namespace {

constexpr int FLIT_WORDS = ports::LINK_OUT[0].words(), MESSAGE_WORDS = ports::MESSAGES_OUT[0].words();
// Cycles of all GPUs together from which on more than one thread is worth waking.
constexpr uint64_t SHARED = 64;

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

class Gpu : public WireEnds {
public:
    Gpu(int rank, std::shared_ptr<VerilatedContext> shared)
        : context{std::move(shared)}, model{context.get(), ("gpu" + std::to_string(rank)).c_str()} {
        model.rank = rank;
        model.rst = 1;
        model.clk = 0;
        std::fill(inputs(), inputs() + sizeof(model.inputs) / sizeof(uint32_t), 0);
    }

    // A model that goes looks for what it has in the context of the thread.
    ~Gpu() override { Verilated::threadContextp(context.get()); }

    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    Field place(bool flits, bool enters, uint64_t port) const override {
        const auto& fields = flits ? enters ? ports::LINK_IN : ports::LINK_OUT
                                   : enters ? ports::MESSAGES_IN : ports::MESSAGES_OUT;
        return fields[port];
    }

    uint32_t* inputs() { return model.inputs.data(); }
    const uint32_t* outputs() const { return shown ? shown : model.outputs.data(); }
    bool is(Field flag) const { return get_bit(outputs(), flag); }
    bool done() const { return is(ports::DONE) && !is(ports::BUSY); }
    bool bad() const {
        return is(ports::VIOLATION) || is(ports::STRAY) || is(ports::READ_ERROR) || is(ports::INTERRUPT);
    }

    // The status as hexadecimal digits.
    std::string status() const {
        std::string digits;
        for (int n = (ports::STATUS.width - 1) / 4; n >= 0; --n) {
            const int low = 4 * n, width = std::min(4, ports::STATUS.width - low);
            digits += "0123456789abcdef"[get_bits(outputs(), {ports::STATUS.low + low, width})];
        }
        return digits;
    }

    void drive(const HostRequest& request) {
        uint32_t* const to = inputs();
        set_bits(to, ports::AXI_AWADDR, request.awaddr);
        set_bits(to, ports::AXI_AWVALID, request.awvalid);
        set_bits(to, ports::AXI_WDATA, request.data);
        set_bits(to, ports::AXI_WSTRB, 0xf);
        set_bits(to, ports::AXI_WVALID, request.wvalid);
        set_bits(to, ports::AXI_BREADY, request.bready);
        set_bits(to, ports::AXI_ARADDR, request.araddr);
        set_bits(to, ports::AXI_ARVALID, request.arvalid);
        set_bits(to, ports::AXI_RREADY, request.rready);
        const uint64_t write = static_cast<uint64_t>(request.data) << 6 | request.gemm_index << 1 | request.gemm_write;
        set_bits(to, ports::WRITE, write);
        // What starts all GPUs at once is no request's.
        if (request.start != starting) set_bits(to, ports::START, request.start);
        starting = request.start;
    }

    HostAnswer answer() const {
        const uint32_t* const from = outputs();
        return {
            .rdata = static_cast<uint32_t>(get_bits(from, ports::AXI_RDATA)),
            .awready = get_bit(from, ports::AXI_AWREADY),
            .wready = get_bit(from, ports::AXI_WREADY),
            .bvalid = get_bit(from, ports::AXI_BVALID),
            .bokay = get_bits(from, ports::AXI_BRESP) == 0,
            .arready = get_bit(from, ports::AXI_ARREADY),
            .rvalid = get_bit(from, ports::AXI_RVALID),
            .rokay = get_bits(from, ports::AXI_RRESP) == 0,
        };
    }

    // The rising edge of the clock in cycle `now`. The host's request is what it drove before it.
    void rise(uint64_t now, Host* host, const Mirror& mirror) {
        take_in(now, inputs(), mirror);
        if (host) {
            if (!host->idle()) drive(host->request());
            host->step(answer());
        }
        if (recorded) recorded->enter(now, inputs());
        if (asleep()) {
            if (followed->enters(now, inputs())) return;
            wake(now);
        }
        model.clk = 1;
        model.eval();
    }

    // The falling edge after it, from which on the outputs of the cycle `now` stand.
    void fall(uint64_t now) {
        if (asleep()) {
            shown = followed->left(now);
        } else {
            model.clk = 0;
            model.eval();
        }
        if (recorded) recorded->leave(now, outputs());
        trouble |= bad();
        send_out(now, outputs());
    }

    // From cycle `now` on it is not simulated as long as it is given what it was given in `history`, whose state before that
    // cycle is its own: it shows what it did there. The first other word wakes it: then it goes through those cycles.
    void sleep(const History& history, uint64_t now) {
        followed = &history;
        since = now;
        shown = history.left(now - 1);
    }
    bool asleep() const { return followed; }

    // Its state is to be that before cycle `now`.
    void wake(uint64_t now) {
        if (!asleep()) return;
        const auto given = model.inputs;
        for (uint64_t cycle = since; cycle < now; ++cycle) {
            std::memcpy(inputs(), followed->entered(cycle), sizeof(model.inputs));
            model.clk = 1;
            model.eval();
            model.clk = 0;
            model.eval();
        }
        model.inputs = given;
        followed = nullptr;
        shown = nullptr;
    }

    std::shared_ptr<VerilatedContext> context;
    GpuModel model;
    // Whether something was bad in any cycle since this was last cleared.
    bool trouble = false;
    // Where all that enters and leaves is noted, or null.
    History* recorded = nullptr;

private:
    bool starting = false;
    const History* followed = nullptr;
    const uint32_t* shown = nullptr;
    uint64_t since = 0;
};

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

double wall() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double processor() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// One collective: program, time the GEMM alone if asked, zero if asked, arm, run, read the counters, dump.
void run(System& system, const Session& session) {
    const double started = wall(), worked = processor();
    std::string alone = "[]", ranks;
    bool finished = false;
    system.reset();
    system.set_stall(session.number("stall"));
    system.program("before");
    if (session.number("alone")) {
        // The GEMM by itself, its stores plain and local: what the effective communication time is counted from.
        system.pulse(ports::START);
        system.wait(&System::all_quiet);
        alone = system.statuses();
    }
    // After the GEMM alone, which stores into the same memory.
    if (session.number("fill")) {
        system.pulse(ports::FILL);
        system.wait(&System::all_quiet);
    }
    double programmed = wall();
    system.forget_trouble();
    if (!system.trouble()) {
        // What was stored so far must be in the DRAM before a neighbour may send.
        system.program("settle");
        system.program("setup");
        programmed = wall();
        system.pulse(ports::START);
        if (session.number("late_cycles")) {
            system.advance(session.number("late_cycles"));
            system.program("late");
        }
        if (session.number("doorbells")) system.program("doorbells");
        finished = system.wait(&System::all_done);
    }
    const double simulated = wall();
    // The last rank notes its end in the cycle after it.
    system.advance(5);
    if (finished && !session.all("phase_drain").empty()) system.program("drain");
    ranks = system.statuses();
    system.program("counters");
    system.keep_answers();
    // Writes already issued reach the DRAM array a few cycles after the last command.
    system.advance(50);
    system.pulse(ports::DUMP);
    system.advance(5);
    std::ofstream result{"result.json"};
    result << "{\"finished\": " << (finished ? "true" : "false") << ", \"alone\": " << alone << ", \"ranks\": " << ranks
           << ", \"flipped_bits\": " << system.flipped() << ", \"switch_busy\": " << system.switch_busy()
           << ", \"switch_stray\": " << (system.stray() ? "true" : "false") << ", \"seconds\": {\"program\": " << programmed - started << ", \"simulate\": " << simulated - programmed
           << ", \"read\": " << wall() - simulated << "}, \"processor_seconds\": " << processor() - worked << "}\n";
    if (!result.flush()) throw std::runtime_error("result.json cannot be written");
}

}  // namespace

#if T3_FAULTS
#include "fault_server.h"
#elif T3_SEQUENCES
#include "sequence_server.h"
#else
static void serve(System&, const Session&) { throw std::runtime_error("this model was built for single runs"); }
#endif

int main(int argc, char** argv) {
    try {
        const Session session{argv[1]};
        System system{session, argc, argv};
        if (session.all("fault_campaign").empty() && session.all("sequences").empty())
            run(system, session);
        else
            serve(system, session);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
