// A server of sequences of collectives, in models of which C++ can see and change what stands around the node
// (`sim/simulator/public_state.py`).
//
// After reset a process forks for each sequence. The child runs its collectives one after the other without another reset:
// each GPU has a host of its own, which ends the epoch before, waits until it is drained, programs all tables anew, arms the
// next epoch and starts the kernels. Nothing of the node is ever touched but through its ports. What stands around it is
// this model's own and is changed by the back door: data of the DRAM, not its tags, what compute units store, their plans;
// and compute units that are not at their end are set back, as a driver kills kernels.
//
// Session: `jobs`; phase `before`; `bound`: cycles that a collective may take on a GPU, or an end of it; `epochs`: numbers that
// there are; `seeded`: a fault of the software, to see that it is found (`Seeded`): that tables are not programmed anew,
// that an abort tells nobody, or that gates of the compute units are as far open as the collective before left them.
// Addresses of registers, and masks of their fields, by name.
// Each sequence gets a line on standard output: NUMBER, and "VERDICT COLLECTIVE GPU DETAIL DRAINED CYCLES ENDS LASTED": what
// was wrong with which collective on which GPU; the most cycles from an abort until a GPU was drained; all cycles; by
// collective c or a for each that was completed or aborted; and cycles of each from arming to its end, by commas.
#pragma once

#include <random>

#include "answers.h"
#include "around_node.h"
#include "sequence.h"
#include "sequence_job.h"
#include "system.h"

namespace {

// What was found wrong, of which collective on which GPU.
struct Wrong {
    const char* what;
    size_t item, gpu;
    uint64_t detail;
};

class SequenceServer {
public:
    SequenceServer(System& system, const Session& session)
        : system{system}, session{session}, bound{session.number("bound")}, slice{session.number("quantum")},
          seeded{session.number("seeded")} {}

    void serve() {
        system.reset();
        system.program("before");
        // The gates of the compute units are swept, and links are up.
        system.advance(SETTLED);
        for (const auto& gpu : system.all()) {
            around.push_back(std::make_unique<Around>(*gpu));
            hosts.push_back(std::make_unique<Host>(std::vector<uint64_t>{0}, nullptr));
        }
        for (uint64_t number = 0; number < session.number("jobs"); ++number)
            jobs.push_back(read_job("../jobs/" + std::to_string(number) + "/", around.size(), around[0]->word_bytes()));
        std::vector<Host*> own;
        for (const auto& host : hosts) own.push_back(host.get());
        system.give_hosts(own);
        std::ifstream file{"sequences.txt"};
        for (std::string line; std::getline(file, line);) run_apart(parsed(line, jobs.size()));
    }

private:
    // Where a host is with a collective: it waits for the others; ends the epoch before; waits until nothing is left of it,
    // and again when the compute units are set back; programs; has called for the epoch; looks at what an aborted one has
    // left; runs; has seen its end; and waits until what was aborted is drained.
    enum class Stage { WAITS, UNLOCKS, DRAINS, KILLED, PROGRAMS, ARMS, LEFT_OVER, RUNS, SETTLES, ABORTED, OVER };

    struct Driver {
        Stage stage = Stage::WAITS;
        size_t item = 0, ring = 0, next_abort = 0;
        uint64_t since = 0, until = 0, armed_at = 0, looks_from = 0;
        bool was_aborted = false, asked = false, gave_up = false;
    };

    enum Seeded : uint64_t { NOTHING, UNREWRITTEN, UNTOLD, UNSHUT };

    static constexpr uint64_t SETTLED = 2500, REACHES = 60, LONGEST_PAUSE = 200;
    // Cycles in which compute units whose collective was aborted may come to their end, before they are set back.
    static constexpr uint64_t PATIENCE = 400;

    void run_apart(const Sequence& wanted) {
        const int answer = answering_child(wanted.number);
        if (answer != PARENT) reply(answer, run(wanted));
    }

    std::string run(const Sequence& wanted) {
        sequence = &wanted;
        const size_t gpus = system.all().size(), items = wanted.items.size();
        random.seed(wanted.seed);
        drivers.assign(gpus, {});
        aborted_at.assign(items, System::NEVER);
        ended.assign(items, 0);
        aborted.assign(items, false);
        lasted.assign(items, 0);
        system.set(ports::STALL, wanted.stall);
        const uint64_t from = system.cycle();
        for (Driver& driver : drivers) driver.since = from;
        std::ostringstream text;
        try {
            while (!over()) {
                for (size_t gpu = 0; gpu < gpus; ++gpu) {
                    look_at(gpu);
                    advance(gpu);
                }
                system.advance(slice);
            }
            text << "ok 0 0 0";
        } catch (const Wrong& wrong) {
            text << wrong.what << " " << wrong.item << " " << wrong.gpu << " " << wrong.detail;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
            _exit(1);
        }
        text << " " << longest << " " << system.cycle() - from << " ";
        for (size_t n = 0; n < items; ++n) text << (ended[n] < gpus ? '-' : aborted[n] ? 'a' : 'c');
        text << " ";
        for (size_t n = 0; n < items; ++n) text << (n ? "," : "") << lasted[n];
        return text.str();
    }

    bool over() const {
        return std::all_of(drivers.begin(), drivers.end(), [](const Driver& item) { return item.stage == Stage::OVER; });
    }

    const Item& item_of(const Driver& driver) const { return sequence->items.at(driver.item); }
    const Part& part_of(size_t gpu) const { return jobs.at(item_of(drivers[gpu]).job).parts.at(gpu); }

    uint64_t command(int operation, const char* address, uint64_t value) const {
        return static_cast<uint64_t>(operation) << 60 | session.number(address) << 32 | value;
    }
    uint64_t flag(const char* name) const { return session.number(name); }

    [[noreturn]] void fail(const char* what, size_t gpu, uint64_t detail) const {
        throw Wrong{what, std::min(drivers[gpu].item, sequence->items.size() - 1), gpu, detail};
    }

    // What must never be seen, or not in a collective that nobody has aborted.
    void look_at(size_t number) {
        const Gpu& gpu = *system.all()[number];
        Driver& driver = drivers[number];
        if (hosts[number]->refused()) fail("refused", number, 0);
        if (gpu.is(ports::VIOLATION) || gpu.is(ports::STRAY)) fail("harmed", number, 0);
        if (driver.stage == Stage::OVER) return;
        const bool started = driver.stage == Stage::RUNS || driver.stage == Stage::SETTLES;
        const bool runs = (driver.stage == Stage::ARMS && !driver.was_aborted) ||
                          (started && system.cycle() >= driver.looks_from);
        if (runs && aborted_at[driver.item] == System::NEVER) {
            if (gpu.is(ports::INTERRUPT)) fail_by_fault(number);
            if (gpu.is(ports::READ_ERROR)) fail("read_refused", number, 0);
        }
        if (driver.stage != Stage::WAITS && system.cycle() > driver.since + bound)
            fail(aborted_at[driver.item] == System::NEVER ? "hang" : "hang_after_abort", number,
                 static_cast<uint64_t>(driver.stage));
    }

    [[noreturn]] void fail_by_fault(size_t gpu) {
        Host& host = *hosts[gpu];
        const auto finish = [&] {
            for (uint64_t n = 0; n < bound && !host.idle(); ++n) system.advance(1);
        };
        finish();
        host.begin({command(2, "fault_record", 0), 0});
        finish();
        fail("fault", gpu, host.seen());
    }

    // The next abort of a GPU, if it falls into the next slice, at its cycle; whether it does.
    bool add_aborts(size_t gpu, std::vector<uint64_t>& commands) {
        Driver& driver = drivers[gpu];
        const Item& item = item_of(driver);
        size_t& next = driver.next_abort;
        while (next < item.aborts.size() && item.aborts[next].gpu != gpu) ++next;
        if (next == item.aborts.size()) return false;
        const uint64_t now = system.cycle(), at = std::max(now, driver.armed_at + item.aborts[next].cycle);
        if (at >= now + slice) return false;
        ++next;
        aborted_at[driver.item] = std::min(aborted_at[driver.item], at);
        driver.gave_up = seeded == UNTOLD;
        if (at > now) commands.push_back(6ull << 60 | (at - now));
        commands.push_back(command(1, "control", flag(driver.gave_up ? "disarm" : "abort")));
        return true;
    }

    // Read the status; whether it has been read.
    bool asks(size_t gpu) {
        Driver& driver = drivers[gpu];
        if (driver.asked) {
            driver.asked = false;
            return true;
        }
        driver.asked = true;
        hosts[gpu]->begin({command(2, "status", 0), 0});
        return false;
    }

    void enter(Driver& driver, Stage stage) {
        driver.stage = stage;
        driver.asked = false;
    }

    void start(size_t gpu, std::vector<uint64_t> commands) {
        drivers[gpu].looks_from = system.cycle() + 2 * slice;
        commands.push_back(7ull << 60);
        commands.push_back(0);
        hosts[gpu]->begin(std::move(commands));
        enter(drivers[gpu], Stage::RUNS);
    }

    void end_of(size_t gpu) {
        Driver& driver = drivers[gpu];
        ++ended[driver.item];
        aborted[driver.item] = aborted[driver.item] || driver.was_aborted;
        lasted[driver.item] = std::max(lasted[driver.item], system.cycle() - driver.armed_at);
        ++driver.item;
        driver.next_abort = driver.ring = 0;
        driver.gave_up = false;
        enter(driver, driver.item == sequence->items.size() ? Stage::OVER : Stage::WAITS);
    }

    void advance(size_t gpu) {
        Driver& driver = drivers[gpu];
        Host& host = *hosts[gpu];
        const uint64_t now = system.cycle();
        if (driver.stage == Stage::OVER || !host.idle()) return;
        switch (driver.stage) {
            case Stage::WAITS:
                if (!item_of(driver).alone && driver.item && ended[driver.item - 1] < system.all().size()) return;
                driver.since = now;
                driver.until = now + random() % LONGEST_PAUSE;
                enter(driver, Stage::UNLOCKS);
                return;
            case Stage::UNLOCKS:
                if (now < driver.until) return;
                if (driver.item && !driver.was_aborted) host.begin({command(1, "control", flag("disarm")), 0});
                driver.until = now + PATIENCE;
                enter(driver, Stage::DRAINS);
                return;
            case Stage::DRAINS: {
                if (!asks(gpu)) return;
                if (!rests(gpu) || (system.all()[gpu]->is(ports::BUSY) && now < driver.until)) return;
                if (around[gpu]->offers()) return;
                around[gpu]->kill(seeded == UNSHUT);
                driver.until = now + REACHES;
                enter(driver, Stage::KILLED);
                return;
            }
            case Stage::KILLED: {
                // What they had in flight has reached the memory.
                if (now < driver.until || !asks(gpu) || !rests(gpu)) return;
                const SequenceJob& job = jobs.at(item_of(driver).job);
                around[gpu]->lay(job, part_of(gpu), random());
                program(gpu);
                enter(driver, Stage::PROGRAMS);
                return;
            }
            case Stage::PROGRAMS: {
                driver.armed_at = now;
                std::vector<uint64_t> commands{command(1, "control", flag("arm"))};
                add_aborts(gpu, commands);
                commands.push_back(0);
                host.begin(std::move(commands));
                enter(driver, Stage::ARMS);
                return;
            }
            default: run_on(gpu);
        }
    }

    bool rests(size_t gpu) const {
        const uint32_t status = hosts[gpu]->seen();
        return status & flag("drained") && status & flag("idle");
    }

    void program(size_t gpu) {
        const Driver& driver = drivers[gpu];
        std::vector<uint64_t> commands{command(1, "interrupt_status", 7)};
        if (seeded != UNREWRITTEN || !driver.item) {
            const auto& tables = part_of(gpu).commands;
            commands.insert(commands.end(), tables.begin(), tables.end());
        }
        commands.push_back(command(1, "epoch_register", driver.item % session.number("epochs") + 1));
        commands.push_back(0);
        hosts[gpu]->begin(std::move(commands));
    }

    void run_on(size_t gpu) {
        Driver& driver = drivers[gpu];
        Host& host = *hosts[gpu];
        const uint64_t now = system.cycle();
        if (driver.stage == Stage::SETTLES) {
            // What was written last has reached the memory; and stores to peers have left, of which `done` does not tell.
            if (now < driver.until || !asks(gpu) || !(host.seen() & flag("idle"))) return;
            if (const uint64_t wrong = around[gpu]->differing(part_of(gpu))) fail("wrong", gpu, wrong);
            if (const uint64_t wrong = around[gpu]->wrong_reads()) fail("wrong_reads", gpu, wrong);
            end_of(gpu);
            return;
        }
        if (driver.stage == Stage::LEFT_OVER) {
            // What an aborted epoch has left in the Tracker is said once, when the next one is armed. That is all.
            const bool told = system.all()[gpu]->is(ports::INTERRUPT);
            const bool other = (host.seen() & flag("fault")) != flag("left_over");
            if (told && !driver.asked) {
                // It may have come after the record was read.
                driver.asked = true;
                host.begin({command(2, "fault_record", 0), 0});
                return;
            }
            if (told && other && aborted_at[driver.item] == System::NEVER) fail("fault", gpu, host.seen());
            driver.asked = false;
            start(gpu, {command(1, "interrupt_status", 7)});
            return;
        }
        if (driver.asked) {
            driver.asked = false;
            const uint32_t status = host.seen();
            if (driver.stage == Stage::ABORTED) {
                if (status & flag("drained")) {
                    longest = std::max(longest, now - std::max(aborted_at[driver.item], driver.armed_at));
                    driver.was_aborted = true;
                    end_of(gpu);
                    return;
                }
            } else if (status & flag("aborted") || (driver.gave_up && status & flag("drained"))) {
                if (aborted_at[driver.item] == System::NEVER) fail("aborted_by_nobody", gpu, 0);
                driver.since = now;
                enter(driver, Stage::ABORTED);
            } else if (driver.stage == Stage::ARMS) {
                if (status & flag("armed")) {
                    if (driver.was_aborted) {
                        enter(driver, Stage::LEFT_OVER);
                        host.begin({command(2, "fault_record", 0), 0});
                    } else {
                        start(gpu, {});
                    }
                    return;
                }
            } else if (status & flag("done") && !system.all()[gpu]->is(ports::BUSY)) {
                driver.was_aborted = false;
                driver.until = now + REACHES;
                enter(driver, Stage::SETTLES);
                return;
            }
        }
        if (std::vector<uint64_t> commands; add_aborts(gpu, commands)) {
            commands.push_back(0);
            host.begin(std::move(commands));
            return;
        }
        if (driver.stage == Stage::RUNS && driver.ring < part_of(gpu).doorbells.size()) {
            host.begin(part_of(gpu).doorbells[driver.ring++]);
            return;
        }
        asks(gpu);
    }

    System& system;
    const Session& session;
    const uint64_t bound, slice, seeded;
    std::vector<std::unique_ptr<Around>> around;
    std::vector<std::unique_ptr<Host>> hosts;
    std::vector<SequenceJob> jobs;
    const Sequence* sequence = nullptr;
    std::mt19937_64 random;
    std::vector<Driver> drivers;
    // By collective: the first abort, GPUs that have ended it, whether one has aborted it, the longest time.
    std::vector<uint64_t> aborted_at, ended, lasted;
    std::vector<bool> aborted;
    uint64_t longest = 0;
};

void serve(System& system, const Session& session) { SequenceServer{system, session}.serve(); }

}  // namespace
