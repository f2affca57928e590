// A fork server of runs in which something goes wrong, in models whose state C++ can see
// (`sim/simulator/public_state.py`).
//
// A run is two collectives, one after the other, on the same tables, so that what the first has left behind shows in the
// second. A process goes once to the end and notes what is right: digests of the whole state by the way, and all that enters
// and leaves each GPU. Then it goes again, stops before every cycle in which something is to go wrong, and forks: the child
// does it, goes on, and says what came of it. With `shorten` it simulates nothing that is known already:
//   A GPU to which nothing happened sleeps until something enters that is not what entered without a fault, and then goes
//   through what it missed; one whose state is again what it was without a fault goes to sleep. What only records (counters,
//   places of errors) is no part of that state: how much more it is then, it stays. When all sleep, the child ends.
//   A bit of a memory is flipped when its word is next read or written: until then nobody would notice.
//   A child ends in a state that one before it came to, as that one did.
//
// Session: phases of the host's program `before`, `settle`, `guard`, `setup`; `again`, the second collective; `abort_N`, by
// GPU N; `drained`, nothing of an epoch is left anywhere; `acknowledge`, interrupts are cleared. `bound`: cycles that a
// collective may take; `grid`: cycles between two digests; `compare`: whether results are compared; `shorten`: see above.
// Each injection gets a line on standard output, NUMBER and `Facts`. What the run without a fault was is left in
// reference.txt. Without injections that is all, with a list of all state in state.txt, and a dump of the memories.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"
#include "deciding_state.h"
#include "fault_plan.h"
#include "first_uses.h"
#include "run_outcomes.h"
#include "system.h"

namespace {

enum Report : unsigned { INTERRUPT = 1, READ_REFUSED = 2, REGISTER_REFUSED = 4, LINK_DEAD = 8 };

// What is right: digests of what is compared, by collective where there are two.
struct Reference {
    std::vector<uint64_t> sectors[2], registers;
};

class FaultServer {
public:
    FaultServer(System& system, const Session& session)
        : system{system}, session{session}, bound{session.number("bound")}, slice{session.number("epoch")},
          grid{session.number("grid")}, plan{states(system)} {
        const uint64_t most = 4 * bound;
        rows = std::make_unique<Rows>(2 * gpus() + 1 + plan.statistics.size(), grid, most);
        for (const auto& gpu : system.all())
            histories.push_back(std::make_unique<History>(gpu->model.inputs.size(), gpu->model.outputs.size(), most));
    }

    void serve() {
        system.on_stop([this] { stopped(); });
        system.reset();
        // Leaves in each model what a settling leaves, as every injection does. All processes of the campaign begin here, with
        // the same addresses in what a digest is made of.
        for (const auto& gpu : system.all()) settle(*gpu);
        if (plan.injections.empty()) {
            record();
            list_state();
            system.pulse(ports::DUMP);
            system.advance(5);
            return;
        }
        outcomes = std::make_unique<Outcomes>(plan.injections.size());
        uint64_t* const begin = shared_words(plan.injections.size());
        if (const pid_t recorder = fork(); recorder == 0) {
            record();
            for (size_t n = 0; n < plan.injections.size(); ++n) begin[n] = beginning(n);
            _exit(0);
        } else {
            int status = 0;
            if (waitpid(recorder, &status, 0) < 0 || status) throw std::runtime_error("the run without a fault failed");
        }
        look_for_what_decides();
        read_reference();
        for (size_t n = 0; n < plan.injections.size(); ++n) plan.injections[n].cycle = begin[n];
        std::stable_sort(plan.injections.begin(), plan.injections.end(),
                         [](const Injection& a, const Injection& b) { return a.cycle < b.cycle; });
        system.stop_at(plan.injections.front().cycle);
        try {
            run();
        } catch (const Over&) {
        }
        if (injected) answer();
    }

private:
    struct Over {};
    struct Abort {};

    static std::vector<std::map<std::string, Variable>> states(System& system) {
        std::vector<std::map<std::string, Variable>> found;
        for (const auto& gpu : system.all()) found.push_back(variables(*gpu));
        return found;
    }

    size_t gpus() const { return system.all().size(); }
    bool asleep(size_t gpu) const { return system.all().at(gpu)->asleep(); }
    bool is_counter(const Held& item) const {
        return std::find(plan.counters.begin(), plan.counters.end(), item.item) != plan.counters.end();
    }

    void look_for_what_decides() {
        for (size_t number = 0; number < gpus(); ++number) decide.emplace_back(*system.all()[number], number, plan);
    }

    // One run, to its end or to where it is over.
    void run() {
        for (const char* phase : {"before", "settle", "guard", "setup"}) program(phase);
        try {
            collective(0);
        } catch (const Abort&) {
            recover();
        }
        program("again");
        // What the second one has found left of one that was aborted is known.
        if (recovered) program("acknowledge");
        collective(1);
        facts.finished = true;
        finish();
    }

    void program(const std::string& phase) {
        try {
            system.program(phase);
        } catch (const std::runtime_error&) {
            // The host waits for an answer, or for a status that does not come.
            note_reports();
            throw Over{};
        }
    }

    void collective(int number) {
        begun[number] = system.cycle();
        system.pulse(ports::START);
        for (const uint64_t end = system.cycle() + bound; !system.all_done();) {
            system.advance(slice);
            note_reports();
            if (facts.reported && !recovered) throw Over{};
            if (system.cycle() >= end) throw Over{};
        }
        over[number] = system.cycle();
        // What was written last has reached the memory.
        system.advance(50);
        note_reports();
        compare(number);
    }

    // After an abort: the kernels that it has surprised come to their end, and nothing of the epoch is left.
    void recover() {
        const uint64_t from = system.cycle();
        program("abort_" + injected->words.at(0));
        for (const uint64_t end = from + bound; !system.all_quiet();) {
            if (system.cycle() >= end) throw Over{};
            system.advance(slice);
        }
        program("drained");
        facts.drained = system.cycle() - from;
        note_reports();
        recovered = true;
    }

    void note_reports() {
        unsigned found = system.refused() ? REGISTER_REFUSED : 0;
        for (const auto& gpu : system.all())
            found |= (gpu->is(ports::INTERRUPT) ? INTERRUPT : 0) | (gpu->is(ports::READ_ERROR) ? READ_REFUSED : 0);
        for (const Variable* flag : plan.dead)
            if (*flag->data) found |= LINK_DEAD;
        (recovered ? facts.late : facts.reported) |= found;
    }

    static uint64_t differing(const std::vector<uint64_t>& found, const std::vector<uint64_t>& right) {
        uint64_t count = found.size() != right.size();
        for (size_t n = 0; n < std::min(found.size(), right.size()); ++n) count += found[n] != right[n];
        return count;
    }

    // Digests of `list`; what belongs to a GPU that sleeps is `right`.
    template <typename Item>
    std::vector<uint64_t> digests_of(const std::vector<Item>& list, const std::vector<uint64_t>& right) const {
        std::vector<uint64_t> found;
        for (const Item& item : list)
            found.push_back(asleep(item.gpu) ? right.at(found.size()) : item.digest());
        return found;
    }

    void compare(int number) {
        std::vector<uint64_t>& right = reference.sectors[number];
        const auto found = digests_of(plan.sectors, right);
        if (!injected)
            right = found;
        else if (session.number("compare") && (number == 1 || !recovered))
            facts.wrong_sectors += differing(found, right);
    }

    void finish() {
        const auto held = digests_of(plan.registers, reference.registers);
        if (!injected) {
            reference.registers = held;
            note(ends());
            return;
        }
        facts.wrong_registers += differing(held, reference.registers);
        for (size_t n = 0; n < plan.statistics.size(); ++n) {
            const Held& item = plan.statistics[n];
            // What it has more than without a fault it keeps, as long as the GPU sleeps.
            const uint64_t more = asleep(item.gpu) ? extra[n] : item.value() - ends()[n];
            if (item == hit)
                facts.wrong_registers += more != 0;
            else if (is_counter(item))
                facts.corrected += static_cast<int64_t>(more);
        }
    }

    void note(uint64_t* place) const {
        for (const Held& item : plan.statistics) *place++ = item.value();
    }

    // Where a row has what statistics are; that of the end is the first.
    uint64_t* counted(uint64_t cycle) const { return rows->at(cycle) + 2 * gpus() + 1; }
    uint64_t* ends() const { return counted(0); }

    uint64_t between() const {
        Digest digest;
        system.add_to(digest);
        return digest.value();
    }

    // What counters of corrections say now.
    int64_t corrected_so_far(uint64_t now) const {
        uint64_t sum = 0;
        for (size_t n = 0; n < plan.statistics.size(); ++n)
            if (is_counter(plan.statistics[n]))
                sum += asleep(plan.statistics[n].gpu) ? counted(now)[n] + extra[n] : plan.statistics[n].value();
        return static_cast<int64_t>(sum);
    }

    // Whether a run that is in the same state has been to its end. What is told of it before it came there, an abort, a
    // report or a bit that was flipped in what is looked at, must have been the same too, so only of faults on wires.
    bool known(uint64_t now) {
        if (injected->kind != "wire" || passed.size() == Outcomes::MOST) return false;
        note_reports();
        if (facts.reported) return false;
        const uint64_t* const right = rows->at(now);
        Digest control, memories;
        for (const uint64_t value : {now, facts.wrong_sectors, between()}) control.add(value);
        for (size_t number = 0; number < gpus(); ++number)
            control.add(asleep(number) ? right[number] : decide[number].control());
        for (size_t number = 0; number < gpus(); ++number)
            memories.add(asleep(number) ? right[gpus() + number] : decide[number].memory());
        const Outcomes::State here{control.value() | 1, memories.value(), corrected_so_far(now)};
        if (const auto* const found = outcomes->find(here.key); found && found->state.memories == here.memories) {
            facts = found->facts;
            facts.corrected += here.corrected - found->state.corrected;
            return true;
        }
        passed.push_back(here);
        return false;
    }

    // A GPU whose state is that without a fault sleeps until something else comes in.
    void send_to_sleep(uint64_t now) {
        const uint64_t* const right = rows->at(now);
        for (size_t number = 0; number < gpus(); ++number) {
            Gpu& gpu = *system.all()[number];
            if (gpu.asleep() || decide[number].control() != right[number]) continue;
            if (decide[number].memory() != right[gpus() + number]) continue;
            bool same = true;
            for (size_t n = 0; n < plan.statistics.size(); ++n) {
                if (plan.statistics[n].gpu != number) continue;
                extra[n] = plan.statistics[n].value() - counted(now)[n];
                // One that is no sum does not keep what it has more.
                same = same && (!(plan.statistics[n] == hit) || plan.sums.count(hit) || !extra[n]);
            }
            if (same) gpu.sleep(*histories[number], now);
        }
    }

    // At every cycle that the system was told to stop at.
    void stopped() {
        const uint64_t now = system.cycle();
        if (recording)
            note_row(now);
        else if (injected)
            go_on(now);
        else
            begin_injections(now);
    }

    void note_row(uint64_t now) {
        uint64_t* const row = rows->at(now);
        for (size_t number = 0; number < gpus(); ++number) {
            row[number] = decide[number].control();
            row[gpus() + number] = decide[number].memory();
        }
        row[2 * gpus()] = between();
        note(counted(now));
        system.stop_at(now + grid);
    }

    // A run with something wrong is over when all is as without it, or as in another run.
    void go_on(uint64_t now) {
        if (!session.number("shorten")) {
            system.stop_at(System::NEVER);
            return;
        }
        if (now < histories[0]->length()) {
            send_to_sleep(now);
            const bool quiet =
                std::all_of(tampers.begin(), tampers.end(), [](const auto& item) { return item->done(); });
            const bool all =
                std::all_of(system.all().begin(), system.all().end(), [](const auto& gpu) { return gpu->asleep(); });
            if (all && quiet && rows->at(now)[2 * gpus()] == between()) {
                facts.finished = true;
                facts.converged = now;
                finish();
                throw Over{};
            }
            if (quiet && known(now)) throw Over{};
        }
        // Ever sparser, so that it costs little, and in cycles in which other runs stop too.
        uint64_t step = grid;
        while (8 * step <= now - injected->cycle) step *= 2;
        system.stop_at((now / step + 1) * step);
    }

    // A child for each injection of this cycle.
    void begin_injections(uint64_t now) {
        for (; next < plan.injections.size() && plan.injections[next].cycle == now; ++next)
            if (is_child(plan.injections[next])) {
                for (size_t number = 0; session.number("shorten") && number < gpus(); ++number)
                    system.all()[number]->sleep(*histories[number], now);
                extra.assign(plan.statistics.size(), 0);
                inject();
                return;
            }
        if (next == plan.injections.size()) throw Over{};
        system.stop_at(plan.injections[next].cycle);
    }

    // Whether this is the child that is to go on and answer.
    bool is_child(const Injection& injection) {
        const int end = answering_child(injection.number);
        if (end == PARENT) return false;
        answers = end;
        injected = &injection;
        return true;
    }

    void answer() {
        if (facts.end) {
            // It is known from another run.
            for (const auto& item : passed) outcomes->add(item, facts);
            reply(answers, facts.line());
        }
        facts.harmed = std::any_of(system.all().begin(), system.all().end(),
                                   [](const auto& gpu) { return gpu->is(ports::STRAY) || gpu->is(ports::VIOLATION); });
        for (const auto& item : tampers) facts.fired = facts.fired && item->fired();
        facts.end = system.cycle();
        for (const auto& item : passed) outcomes->add(item, facts);
        reply(answers, facts.line());
    }

    void inject() {
        const std::vector<std::string>& words = injected->words;
        system.stop_at((system.cycle() / grid + 1) * grid);
        if (injected->kind == "flip") {
            const size_t gpu = std::stoul(words.at(0));
            hit = &plan.variable(gpu, words.at(1));
            system.all().at(gpu)->wake(system.cycle());
            hit->flip(std::stoull(words.at(2)), std::stoi(words.at(3)));
            settle(*system.all().at(gpu));
        } else if (injected->kind == "wire") {
            tamper_with(words);
        } else if (injected->kind == "abort") {
            // Its state is never that without an abort.
            system.stop_at(System::NEVER);
            throw Abort{};
        } else if (injected->kind != "nothing") {
            throw std::runtime_error("there is no injection " + injected->kind);
        }
    }

    void tamper_with(const std::vector<std::string>& words) {
        static const std::map<std::string, Tamper::Kind> kinds{{"damage", Tamper::Kind::DAMAGE},
                                                               {"drop", Tamper::Kind::DROP},
                                                               {"double", Tamper::Kind::DOUBLE},
                                                               {"reorder", Tamper::Kind::REORDER},
                                                               {"cut", Tamper::Kind::CUT}};
        for (size_t n = 0; n < words.size(); ++n) {
            Output& wire = output(std::stoi(words.at(n)), std::stoi(words.at(n + 1)), words.at(n + 2) == "flits");
            Tamper& tamper = tampered(wire);
            for (n += 3; n < words.size() && words[n] != "and"; n += 3)
                tamper.add({kinds.at(words[n]), std::stoull(words.at(n + 1)), std::stoi(words.at(n + 2))});
        }
    }

    Output& output(int gpu, int port, bool flits) const {
        const int first = (flits ? ports::LINK_OUT : ports::MESSAGES_OUT)[port].low / 32;
        for (Output& found : system.all().at(gpu)->leaving)
            if (found.first == first) return found;
        throw std::runtime_error("nothing is joined to that port");
    }

    Tamper& tampered(Output& output) {
        tampers.push_back(std::make_unique<Tamper>((output.bits + 32) / 32));
        output.tamper = tampers.back().get();
        return *output.tamper;
    }

    // The run in which nothing goes wrong, and reference.txt about it.
    void record() {
        recording = true;
        look_for_what_decides();
        for (size_t number = 0; number < gpus(); ++number) {
            Gpu& gpu = *system.all()[number];
            gpu.recorded = histories[number].get();
            for (Output& item : gpu.leaving) tampered(item);
            listener.add(gpu, *histories[number]);
        }
        watch();
        system.stop_at(grid);
        try {
            run();
        } catch (const Over&) {
            throw std::runtime_error("the run without a fault did not come to its end");
        }
        touch_listener = nullptr;
        std::ofstream file{"reference.txt"};
        for (int number : {0, 1}) {
            file << "span " << begun[number] << " " << over[number] << "\nsectors";
            for (const uint64_t value : reference.sectors[number]) file << " " << value;
            file << "\n";
        }
        file << "registers";
        for (const uint64_t value : reference.registers) file << " " << value;
        file << "\n";
        for (size_t gpu = 0; gpu < gpus(); ++gpu)
            for (int port = 0; port < ports::LINKS; ++port)
                for (const char* kind : {"flits", "messages"}) list_sent(file, gpu, port, kind);
        if (!file.flush()) throw std::runtime_error("reference.txt cannot be written");
    }

    // What is flipped in a memory acts when its word is used: read, or written in part. In the cycle before, what is read
    // at that moment may have come to where it is wanted.
    void watch() {
        first_uses.assign(plan.injections.size(), nullptr);
        if (!session.number("shorten")) return;
        for (size_t n = 0; n < plan.injections.size(); ++n) {
            const Injection& item = plan.injections[n];
            if (item.kind != "flip") continue;
            const size_t gpu = std::stoul(item.words.at(0));
            const Variable& memory = plan.variable(gpu, item.words.at(1));
            const uint64_t word = std::stoull(item.words.at(2));
            if (memory.words > 1 && word < memory.words && item.cycle)
                first_uses[n] = listener.watch(gpu, memory.data + word * memory.bytes, item.cycle - 1);
        }
        touch_listener = &listener;
    }

    // The cycle in which an injection may as well take place: until then nobody would notice. What is never used is flipped
    // at the end.
    uint64_t beginning(size_t number) const {
        const uint64_t asked = plan.injections[number].cycle;
        if (!first_uses[number]) return asked;
        return std::max(asked, std::min(*first_uses[number], over[1] - 1));
    }

    void list_sent(std::ostream& file, size_t gpu, int port, const std::string& kind) const {
        const int first = (kind == "flits" ? ports::LINK_OUT : ports::MESSAGES_OUT)[port].low / 32;
        for (const Output& item : system.all().at(gpu)->leaving) {
            if (item.first != first) continue;
            file << "sent " << gpu << " " << port << " " << kind << " " << item.bits;
            for (const uint64_t cycle : item.tamper->times) file << " " << cycle;
            file << "\n";
        }
    }

    // All variables of a GPU, and whether each keeps what it is changed to.
    void list_state() {
        std::ofstream file{"state.txt"};
        Gpu& gpu = *system.all().at(0);
        for (const auto& [name, item] : plan.state.at(0)) {
            item.flip(item.words - 1, item.bits - 1);
            const Sector last{0, &item, item.words - 1};
            const uint64_t changed = last.digest();
            settle(gpu);
            const bool kept = last.digest() == changed;
            item.flip(item.words - 1, item.bits - 1);
            settle(gpu);
            file << name << " " << item.bits << " " << item.words << " " << kept << "\n";
        }
    }

    void read_reference() {
        std::ifstream file{"reference.txt"};
        int number = -1;
        for (std::string line; std::getline(file, line);) {
            std::istringstream words{line};
            std::string key;
            words >> key;
            number += key == "span";
            if (key != "sectors" && key != "registers") continue;
            auto& list = key == "registers" ? reference.registers : reference.sectors[number];
            for (uint64_t value; words >> value;) list.push_back(value);
        }
    }

    System& system;
    const Session& session;
    const uint64_t bound, slice, grid;
    FaultPlan plan;
    std::vector<DecidingState> decide;
    std::unique_ptr<Rows> rows;
    std::vector<std::unique_ptr<History>> histories;
    FirstUses listener;
    // Of injections into memories; others have none.
    std::vector<const uint64_t*> first_uses;
    std::unique_ptr<Outcomes> outcomes;
    // States that were gone through in which nothing was left to go wrong.
    std::vector<Outcomes::State> passed;
    // What statistics were more than without a fault when their GPU fell asleep.
    std::vector<uint64_t> extra;
    // What a bit was flipped in, or null.
    const Variable* hit = nullptr;
    size_t next = 0;
    Reference reference;
    Facts facts;
    std::vector<std::unique_ptr<Tamper>> tampers;
    uint64_t begun[2] = {0, 0}, over[2] = {0, 0};
    bool recording = false, recovered = false;
    const Injection* injected = nullptr;
    int answers = PARENT;
};

void serve(System& system, const Session& session) { FaultServer{system, session}.serve(); }

}  // namespace
