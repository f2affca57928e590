// One run of a system of GPUs, or a server of many. Called as `gpus SESSION PLUSARGS...` in the folder of the run (`session.h`);
// what the run left goes to result.json.

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>

#include "run_server.h"
#include "session.h"
#include "system.h"

namespace {

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
