// A server of sequences of collectives: a part of `gpus.cpp`, in models of which C++ can see and change what stands around
// the node (built with T3_SEQUENCES, `sim/simulator/public_state.py`).
//
// After reset a process forks for each sequence. The child runs its collectives one after the other without another reset:
// each GPU has a host of its own, which ends the epoch before, waits until it is drained, programs all tables anew, arms the
// next epoch and starts the kernels. Nothing of the node is ever touched but through its ports. What stands around it is
// this model's own and is changed by the back door: data of the DRAM, not its tags, what compute units store, their plans;
// and compute units that are not at their end are set back, as a driver kills kernels.
//
// Session: `jobs`; phase `before`; `bound`: cycles that a collective may take on a GPU, or an end of it; `epochs`: numbers that
// there are; `seeded`: a fault of the software, to see that it is found (`Seeded`): that tables are not programmed anew, or
// that an abort tells nobody. Addresses of registers, and masks of their fields, by name.
// Folder jobN of a job holds, by rank R, what a run of it reads (plan, steps, waits, source, gathered, initial, gates), and
//   commands R.hex: of the host, without epoch and arm    doorbells R.hex: the same, an end behind each ring
//   expected R.hex: sectors of the results, in the order of the lines of job.txt:
//   span SECTORS: of all arrays, from the first sector of the memory on
//   gathered FIRST SECTORS PITCH LAST_BYTES: as for `gathered_checker.sv`
//   result RANK FIRST SECTORS PITCH LAST_BYTES: in rows of `pitch` sectors, of whose last one so many bytes count
// Lines of sequences.txt are "NUMBER SEED STALL" and for each collective "~|- JOB ABORTS {GPU CYCLE}": with - it begins when
// all have ended the one before, with ~ on each GPU by itself. A GPU's abort is written so many cycles after it was armed.
// Each sequence gets a line on standard output: NUMBER, and "VERDICT COLLECTIVE GPU DETAIL DRAINED CYCLES ENDS LASTED": what
// was wrong with which collective on which GPU; the most cycles from an abort until a GPU was drained; all cycles; by
// collective c or a for each that was completed or aborted; and cycles of each from arming to its end, by commas.
#pragma once

#include <random>

#include "answers.h"
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

struct AbortAt {
    size_t gpu;
    uint64_t cycle;
};

struct Item {
    bool alone;
    size_t job;
    std::vector<AbortAt> aborts;
};

struct Sequence {
    std::string number;
    uint64_t seed = 0, stall = 0;
    std::vector<Item> items;
};

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
                rest.push_back({&item, {item.data, item.data + bytes}});
            }
    }

    // Whether the compute units offer an access that the node has not taken yet.
    bool offers() const { return *offered->data; }

    // Compute units as after reset: whatever they were doing, they go on with nothing.
    void kill() {
        for (const auto& [item, bytes] : rest) std::memcpy(item->data, bytes.data(), bytes.size());
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

    // Bytes of a word of each memory, for files.
    const Variable *memory, *plan, *steps, *waits, *gates, *source, *owners;

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
    const Variable *first, *sectors, *pitch, *last_mask, *wrong, *offered;
    std::vector<std::pair<const Variable*, std::vector<unsigned char>>> rest;
};

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
        read_jobs();
        std::vector<Host*> own;
        for (const auto& host : hosts) own.push_back(host.get());
        system.give_hosts(own);
        std::ifstream file{"sequences.txt"};
        for (std::string line; std::getline(file, line);) run_apart(parse(line));
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

    enum Seeded : uint64_t { NOTHING, UNREWRITTEN, UNTOLD };

    static constexpr uint64_t SETTLED = 2500, REACHES = 60, LONGEST_PAUSE = 200;
    // Cycles in which compute units whose collective was aborted may come to their end, before they are set back.
    static constexpr uint64_t PATIENCE = 400;

    void read_jobs() {
        const size_t gpus = system.all().size();
        for (uint64_t number = 0; number < session.number("jobs"); ++number) {
            const std::string folder = "../jobs/" + std::to_string(number) + "/";
            SequenceJob& job = jobs.emplace_back();
            job.parts.resize(gpus);
            std::ifstream file{folder + "job.txt"};
            if (!file) throw std::runtime_error("there is no job " + folder);
            for (std::string line; std::getline(file, line);) {
                std::istringstream words{line};
                std::string key;
                words >> key;
                std::vector<uint64_t> numbers;
                for (uint64_t value; words >> value;) numbers.push_back(value);
                if (key == "span") job.span = numbers.at(0);
                if (key == "gathered") job.gathered = numbers;
                if (key == "result")
                    job.parts.at(numbers.at(0))
                        .results.push_back({numbers.at(1), numbers.at(2), numbers.at(3), numbers.at(4)});
            }
            const Image gates{folder + "gates.hex", static_cast<size_t>(around[0]->gates->bytes)};
            for (size_t rank = 0; rank < gpus; ++rank) read_part(job.parts[rank], folder, rank, gates);
        }
    }

    void read_part(Part& part, const std::string& folder, size_t rank, const Image& gates) const {
        const auto image = [&](const std::string& name, const Variable* memory) {
            return Image{folder + name + std::to_string(rank) + ".hex", static_cast<size_t>(memory->bytes)};
        };
        const Around& of = *around[rank];
        part.plan = image("plan", of.plan);
        part.steps = image("steps", of.steps);
        part.waits = image("waits", of.waits);
        part.gates = gates;
        part.source = image("source", of.source);
        part.gathered = image("gathered", of.owners);
        part.initial = image("initial", of.memory);
        part.expected = image("expected", of.memory);
        const auto commands = [&](const std::string& name) {
            std::vector<uint64_t> found;
            std::ifstream file{folder + name + std::to_string(rank) + ".hex"};
            for (uint64_t command; file >> std::hex >> command;) found.push_back(command);
            return found;
        };
        part.commands = commands("commands");
        for (const uint64_t command : commands("doorbells")) {
            if (part.doorbells.empty() || part.doorbells.back().back() == 0) part.doorbells.emplace_back();
            part.doorbells.back().push_back(command);
        }
    }

    Sequence parse(const std::string& line) const {
        std::istringstream words{line};
        Sequence made;
        words >> made.number >> made.seed >> made.stall;
        std::string mode;
        while (words >> mode) {
            Item& item = made.items.emplace_back();
            size_t aborts = 0;
            item.alone = mode == "~";
            words >> item.job >> aborts;
            item.aborts.resize(aborts);
            for (AbortAt& at : item.aborts) words >> at.gpu >> at.cycle;
            if (!words || item.job >= jobs.size()) throw std::runtime_error("a sequence cannot be read: " + line);
        }
        return made;
    }

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
                around[gpu]->kill();
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
