// A fork server of runs in which something goes wrong: a part of `gpus.cpp`, in models whose state C++ can see (built with
// T3_FAULTS, `sim/simulator/public_state.py`).
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
// Lines of the file campaign.txt, where a name is that of a variable, a GPU a number:
//   register NAME                              must be in the end what it is without a fault
//   statistic NAME                             the same, if a bit of it was flipped: others may count otherwise
//   counter NAME                               counts what hardware has corrected
//   recorded NAME {BITS}                       only records; if BITS is given, only those of its first byte
//   sum NAME                                   of those, one to which something is added and which nothing sets
//   dead END                                   variables whose names end so are not 0 when a link is dead
//   result GPU CHANNEL FIRST COUNT             sectors of the result
//   inject NUMBER CYCLE flip GPU NAME WORD BIT
//   inject NUMBER CYCLE wire {GPU PORT flits|messages {damage|drop|double|reorder|cut SKIP BIT} ... and} ...
//   inject NUMBER CYCLE abort GPU
//   inject NUMBER CYCLE nothing
// Each injection gets a line on standard output, NUMBER and `Facts`. What the run without a fault was is left in
// reference.txt. Without injections that is all, with a list of all state in state.txt, and a dump of the memories.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <set>

#include "answers.h"
#include "model_state.h"
// Of what that knows.
#include "members.h"
#include "touched.h"

namespace {

// A variable of a GPU.
struct Held {
    size_t gpu;
    const Variable* item;

    bool operator==(const Variable* other) const { return item == other; }
    uint64_t digest() const {
        Digest made;
        made.add(item->data, item->bytes * item->words);
        return made.value();
    }
    // Of one that is a number.
    uint64_t value() const {
        uint64_t number = 0;
        std::memcpy(&number, item->data, std::min<size_t>(sizeof number, item->bytes));
        return number;
    }
};

struct Sector {
    size_t gpu;
    const Variable* memory;
    uint64_t number;

    uint64_t digest() const {
        Digest made;
        made.add(memory->data + number * memory->bytes, memory->bytes);
        return made.value();
    }
};

// Bytes of a model that a digest is made of.
struct Span {
    const unsigned char* from;
    size_t bytes;
};

struct Injection {
    std::string number, kind;
    uint64_t cycle = 0;
    std::vector<std::string> words;
};

// What a run was in the end. `fired`: what was to go wrong on a wire has; `harmed`: the memory was written outside of what
// is modelled, or given a command too early; `reported`, and `late` in the collective after an abort: bits of `Report`;
// `converged`: the cycle in which all state was as without a fault, 0: never; `drained`: cycles from an abort until
// nothing of its epoch was left; `corrected`: what the counters of corrections say.
struct Facts {
    bool finished = false, fired = true, harmed = false;
    unsigned reported = 0, late = 0;
    uint64_t wrong_sectors = 0, wrong_registers = 0, converged = 0, end = 0, drained = 0;
    int64_t corrected = 0;

    std::string line() const {
        std::ostringstream text;
        text << finished << " " << fired << " " << harmed << " " << reported << " " << late << " " << wrong_sectors << " "
             << wrong_registers << " " << converged << " " << end << " " << drained << " " << corrected;
        return text.str();
    }
};
enum Report : unsigned { INTERRUPT = 1, READ_REFUSED = 2, REGISTER_REFUSED = 4, LINK_DEAD = 8 };

// The first cycle, from a given one on, in which a word of a memory is read or written.
class FirstUses final : public TouchListener {
public:
    static constexpr uint64_t NEVER = std::numeric_limits<uint64_t>::max();

    // Models are advanced one after the other, each through cycles that its history tells.
    void add(const Gpu& gpu, const History& history) {
        models.push_back({reinterpret_cast<const unsigned char*>(gpu.model.rootp), &history,
                          std::vector<int>(sizeof *gpu.model.rootp, NOBODY)});
    }

    // Where the cycle will be, NEVER until then.
    const uint64_t* watch(size_t gpu, const unsigned char* word, uint64_t from) {
        int& place = models.at(gpu).places.at(word - models[gpu].root);
        if (place == NOBODY) {
            place = static_cast<int>(waiting.size());
            waiting.emplace_back();
        }
        uses.push_back({from, NEVER});
        waiting[place].push_back(&uses.back());
        return &uses.back().cycle;
    }

    void touched(const void* at) override {
        for (const Model& model : models) {
            const size_t offset = static_cast<const unsigned char*>(at) - model.root;
            if (offset >= model.places.size()) continue;
            if (model.places[offset] != NOBODY) note(waiting[model.places[offset]], model.history->current());
            return;
        }
    }

private:
    static constexpr int NOBODY = -1;
    struct Use {
        uint64_t from, cycle;
    };
    struct Model {
        const unsigned char* root;
        const History* history;
        // By the byte that a word begins with, a list in `waiting`.
        std::vector<int> places;
    };

    static void note(std::vector<Use*>& list, uint64_t now) {
        for (size_t n = 0; n < list.size();) {
            if (now >= list[n]->from) {
                list[n]->cycle = now;
                list[n] = list.back();
                list.pop_back();
            } else {
                ++n;
            }
        }
    }

    std::vector<Model> models;
    std::deque<Use> uses;
    std::vector<std::vector<Use*>> waiting;
};

// What is right: digests of what is compared, by collective where there are two.
struct Reference {
    std::vector<uint64_t> sectors[2], registers;
};

// States that runs with something wrong went through, and what came of them: one that comes to the same state ends the
// same way. In memory that all processes of a campaign share, of which one at a time writes.
class Outcomes {
public:
    // A state by digests of all but the memories, and of the memories; `corrected` until then.
    struct State {
        uint64_t key, memories;
        int64_t corrected;
    };
    struct Entry {
        State state;
        Facts facts;
    };

    // For so many runs.
    explicit Outcomes(size_t runs) {
        while (count < 2 * MOST * runs) count *= 2;
        const size_t words = (sizeof(Entry) + sizeof(uint64_t) - 1) / sizeof(uint64_t);
        entries = reinterpret_cast<Entry*>(shared_words(count * words));
    }

    // Kept for a state with `key`, or null.
    const Entry* find(uint64_t key) const {
        const Entry& found = entries[place(key)];
        return found.state.key ? &found : nullptr;
    }

    void add(const State& state, const Facts& facts) {
        Entry& entry = entries[place(state.key)];
        if (!entry.state.key) entry = {state, facts};
    }

    // States that are kept of a run.
    static constexpr size_t MOST = 16;

private:
    size_t place(uint64_t key) const {
        size_t n = key % count;
        while (entries[n].state.key && entries[n].state.key != key) n = (n + 1) % count;
        return n;
    }

    size_t count = 1;
    Entry* entries;
};

// What the run without a fault was at every multiple of `grid` cycles: values of a row each, in memory that all processes
// of a campaign share.
class Rows {
public:
    Rows(size_t width, uint64_t grid, uint64_t cycles)
        : width{width}, grid{grid}, count{cycles / grid}, place{shared_words(width * count)} {}

    uint64_t* at(uint64_t cycle) const {
        if (cycle / grid >= count) throw std::runtime_error("a run is longer than what can be kept of it");
        return place + cycle / grid * width;
    }

private:
    const size_t width;
    const uint64_t grid, count;
    uint64_t* const place;
};

class FaultServer {
public:
    FaultServer(System& system, const Session& session)
        : system{system}, session{session}, bound{session.number("bound")}, slice{session.number("epoch")},
          grid{session.number("grid")} {
        for (const auto& gpu : system.all()) state.push_back(variables(*gpu));
        read_plan();
        const uint64_t most = 4 * bound;
        rows = std::make_unique<Rows>(2 * state.size() + 1 + statistics.size(), grid, most);
        for (const auto& gpu : system.all())
            histories.push_back(std::make_unique<History>(gpu->model.inputs.size(), gpu->model.outputs.size(), most));
    }

    void serve() {
        system.on_stop([this] { stopped(); });
        system.reset();
        // Leaves in each model what a settling leaves, as every injection does. All processes of the campaign begin here, with
        // the same addresses in what a digest is made of.
        for (const auto& gpu : system.all()) settle(*gpu);
        if (injections.empty()) {
            record();
            list_state();
            system.pulse(ports::DUMP);
            system.advance(5);
            return;
        }
        outcomes = std::make_unique<Outcomes>(injections.size());
        uint64_t* const begin = shared_words(injections.size());
        if (const pid_t recorder = fork(); recorder == 0) {
            record();
            for (size_t n = 0; n < injections.size(); ++n) begin[n] = beginning(n);
            _exit(0);
        } else {
            int status = 0;
            if (waitpid(recorder, &status, 0) < 0 || status) throw std::runtime_error("the run without a fault failed");
        }
        for (size_t number = 0; number < state.size(); ++number) decide.push_back(deciding(number));
        read_reference();
        for (size_t n = 0; n < injections.size(); ++n) injections[n].cycle = begin[n];
        std::stable_sort(injections.begin(), injections.end(),
                         [](const Injection& a, const Injection& b) { return a.cycle < b.cycle; });
        system.stop_at(injections.front().cycle);
        try {
            run();
        } catch (const Over&) {
        }
        if (injected) answer();
    }

private:
    struct Over {};
    struct Abort {};

    const Variable& variable(int gpu, const std::string& name) const {
        const auto found = state.at(gpu).find(name);
        if (found == state.at(gpu).end()) throw std::runtime_error("there is no state " + name);
        return found->second;
    }

    void read_plan() {
        std::ifstream file{"campaign.txt"};
        for (std::string line; std::getline(file, line);) {
            std::istringstream words{line};
            std::string key, name;
            words >> key;
            if (key == "inject") {
                Injection& made = injections.emplace_back();
                words >> made.number >> made.cycle >> made.kind;
                for (std::string word; words >> word;) made.words.push_back(word);
            } else if (key == "result") {
                uint64_t gpu, channel, first, count;
                words >> gpu >> channel >> first >> count;
                const Variable& memory = variable(gpu, "gpu_shell.gpu.hbm_" + std::to_string(channel) + ARRAY);
                for (uint64_t n = first; n < first + count; ++n) sectors.push_back({gpu, &memory, n});
            } else if (key == "recorded") {
                uint64_t bits = 0;
                words >> name >> bits;
                recorded.emplace_back(name, bits);
            } else if (key == "dead") {
                words >> name;
                add_ending(name);
            } else if (key == "sum") {
                words >> name;
                for (size_t gpu = 0; gpu < state.size(); ++gpu) sums.insert(&variable(gpu, name));
            } else {
                words >> name;
                std::map<std::string, std::vector<Held>*> lists{
                    {"register", &registers}, {"statistic", &statistics}, {"counter", &counters}};
                auto& list = *lists.at(key);
                for (size_t gpu = 0; gpu < state.size(); ++gpu) list.push_back({gpu, &variable(gpu, name)});
            }
        }
        if (dead.empty()) throw std::runtime_error("nothing tells of dead links");
    }

    void add_ending(const std::string& end) {
        for (const auto& of_gpu : state)
            for (const auto& [name, item] : of_gpu)
                if (ends_so(name, end)) dead.push_back(&item);
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
        for (const Variable* flag : dead)
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
            found.push_back(system.all().at(item.gpu)->asleep() ? right.at(found.size()) : item.digest());
        return found;
    }

    void compare(int number) {
        std::vector<uint64_t>& right = reference.sectors[number];
        const auto found = digests_of(sectors, right);
        if (!injected)
            right = found;
        else if (session.number("compare") && (number == 1 || !recovered))
            facts.wrong_sectors += differing(found, right);
    }

    void finish() {
        const auto held = digests_of(registers, reference.registers);
        if (!injected) {
            reference.registers = held;
            note(ends());
            return;
        }
        facts.wrong_registers += differing(held, reference.registers);
        for (size_t n = 0; n < statistics.size(); ++n) {
            const Held& item = statistics[n];
            // What it has more than without a fault it keeps, as long as the GPU sleeps.
            const uint64_t more = system.all().at(item.gpu)->asleep() ? extra[n] : item.value() - ends()[n];
            if (item == hit)
                facts.wrong_registers += more != 0;
            else if (std::find(counters.begin(), counters.end(), item.item) != counters.end())
                facts.corrected += static_cast<int64_t>(more);
        }
    }

    void note(uint64_t* place) const {
        for (const Held& item : statistics) *place++ = item.value();
    }

    // Where a row has what statistics are; that of the end is the first.
    uint64_t* counted(uint64_t cycle) const { return rows->at(cycle) + 2 * state.size() + 1; }
    uint64_t* ends() const { return counted(0); }

    // The bytes of all that decides how a GPU goes on, but its memory and what only records. What the logic of the design
    // makes of its state, and Verilator keeps in between, follows from that.
    std::vector<Span> deciding(size_t number) const {
        const auto* const symbols = system.all()[number]->model.rootp->vlSymsp;
        const auto* const root = reinterpret_cast<const unsigned char*>(&symbols->TOP);
        std::set<const unsigned char*> kept;
        const auto& outputs = system.all()[number]->model.outputs;
        std::vector<Span> left_out{{reinterpret_cast<const unsigned char*>(outputs.data()), sizeof outputs}};
        for (const auto& [name, item] : state[number]) {
            if (ends_so(name, ARRAY))
                left_out.push_back({item.data, item.bytes * item.words});
            else
                kept.insert(item.data);
        }
        for (const auto& [name, bits] : recorded) {
            const Variable& item = variable(static_cast<int>(number), name);
            kept.erase(item.data);
            left_out.push_back({item.data, item.bytes * item.words});
        }
        std::set<std::string> scopes;
        for (const Member& member : MEMBERS)
            if (kept.count(root + member.offset)) scopes.insert(scope_of(member.name));
        for (const Member& member : MEMBERS) {
            const std::string name = member.name, last = name.substr(scope_of(name).size());
            const bool passing = name.rfind("__V", 0) == 0 || last.rfind("__DOT____V", 0) == 0;
            if (passing || (scopes.count(scope_of(name)) && !kept.count(root + member.offset)))
                left_out.push_back({root + member.offset, member.bytes});
        }
        std::sort(left_out.begin(), left_out.end(), [](const Span& a, const Span& b) { return a.from < b.from; });
        std::vector<Span> found;
        const unsigned char* from = root;
        for (const Span& span : left_out) {
            if (span.from > from) found.push_back({from, static_cast<size_t>(span.from - from)});
            from = std::max(from, span.from + span.bytes);
        }
        const auto* const end = reinterpret_cast<const unsigned char*>(symbols) + sizeof *symbols;
        found.push_back({from, static_cast<size_t>(end - from)});
        return found;
    }

    // The instance that a member belongs to, without the process in which it is.
    static std::string scope_of(const std::string& name) {
        static const std::string between = "__DOT__", process = "process_";
        const size_t end = name.rfind(between);
        if (end == std::string::npos) return "";
        const std::string scope = name.substr(0, end);
        const size_t last = scope.rfind(between);
        const bool inner =
            last != std::string::npos && scope.compare(last + between.size(), process.size(), process) == 0;
        return inner ? scope.substr(0, last) : scope;
    }

    uint64_t control_of(size_t number) const {
        Digest digest;
        for (const Span& span : decide[number]) digest.add(span.from, span.bytes);
        for (const auto& [name, bits] : recorded) {
            const Variable& item = variable(static_cast<int>(number), name);
            if (bits) digest.add<unsigned char>(*item.data & ~bits);
        }
        for (const Input& input : system.all()[number]->arriving) digest.add(input.filled);
        return digest.value();
    }

    uint64_t memory_of(size_t number) const {
        Digest digest;
        for (const auto& [name, item] : state[number])
            if (ends_so(name, ARRAY)) digest.add(item.data, item.bytes * item.words);
        return digest.value();
    }

    uint64_t between() const {
        Digest digest;
        system.add_to(digest);
        return digest.value();
    }

    // What counters of corrections say now.
    int64_t corrected_so_far(uint64_t now) const {
        uint64_t sum = 0;
        for (size_t n = 0; n < statistics.size(); ++n)
            if (std::find(counters.begin(), counters.end(), statistics[n].item) != counters.end())
                sum += system.all()[statistics[n].gpu]->asleep() ? counted(now)[n] + extra[n] : statistics[n].value();
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
        for (size_t number = 0; number < state.size(); ++number)
            control.add(system.all()[number]->asleep() ? right[number] : control_of(number));
        for (size_t number = 0; number < state.size(); ++number)
            memories.add(system.all()[number]->asleep() ? right[state.size() + number] : memory_of(number));
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
        for (size_t number = 0; number < state.size(); ++number) {
            Gpu& gpu = *system.all()[number];
            if (gpu.asleep() || control_of(number) != right[number]) continue;
            if (memory_of(number) != right[state.size() + number]) continue;
            bool same = true;
            for (size_t n = 0; n < statistics.size(); ++n) {
                if (statistics[n].gpu != number) continue;
                extra[n] = statistics[n].value() - counted(now)[n];
                // One that is no sum does not keep what it has more.
                same = same && (!(statistics[n] == hit) || sums.count(hit) || !extra[n]);
            }
            if (same) gpu.sleep(*histories[number], now);
        }
    }

    void stopped() {
        const uint64_t now = system.cycle();
        if (recording) {
            uint64_t* const row = rows->at(now);
            for (size_t number = 0; number < state.size(); ++number) {
                row[number] = control_of(number);
                row[state.size() + number] = memory_of(number);
            }
            row[2 * state.size()] = between();
            note(counted(now));
            system.stop_at(now + grid);
        } else if (injected) {
            if (!session.number("shorten")) {
                system.stop_at(System::NEVER);
                return;
            }
            if (now < histories[0]->length()) {
                send_to_sleep(now);
                const bool quiet =
                    std::all_of(tampers.begin(), tampers.end(), [](const auto& item) { return item->done(); });
                const bool all = std::all_of(system.all().begin(), system.all().end(),
                                             [](const auto& gpu) { return gpu->asleep(); });
                if (all && quiet && rows->at(now)[2 * state.size()] == between()) {
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
        } else {
            for (; next < injections.size() && injections[next].cycle == now; ++next)
                if (is_child(injections[next])) {
                    for (size_t number = 0; session.number("shorten") && number < state.size(); ++number)
                        system.all()[number]->sleep(*histories[number], now);
                    extra.assign(statistics.size(), 0);
                    inject();
                    return;
                }
            if (next == injections.size()) throw Over{};
            system.stop_at(injections[next].cycle);
        }
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
            const int gpu = std::stoi(words.at(0));
            hit = &variable(gpu, words.at(1));
            system.all().at(gpu)->wake(system.cycle());
            hit->flip(std::stoull(words.at(2)), std::stoi(words.at(3)));
            settle(*system.all().at(gpu));
        } else if (injected->kind == "wire") {
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
        } else if (injected->kind == "abort") {
            // Its state is never that without an abort.
            system.stop_at(System::NEVER);
            throw Abort{};
        } else if (injected->kind != "nothing") {
            throw std::runtime_error("there is no injection " + injected->kind);
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
        for (size_t number = 0; number < state.size(); ++number) {
            Gpu& gpu = *system.all()[number];
            gpu.recorded = histories[number].get();
            for (Output& item : gpu.leaving) tampered(item);
            decide.push_back(deciding(number));
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
        for (size_t gpu = 0; gpu < system.all().size(); ++gpu)
            for (int port = 0; port < ports::LINKS; ++port)
                for (const char* kind : {"flits", "messages"}) list_sent(file, gpu, port, kind);
        if (!file.flush()) throw std::runtime_error("reference.txt cannot be written");
    }

    // What is flipped in a memory acts when its word is used: read, or written in part. In the cycle before, what is read
    // at that moment may have come to where it is wanted.
    void watch() {
        first_uses.assign(injections.size(), nullptr);
        if (!session.number("shorten")) return;
        for (size_t n = 0; n < injections.size(); ++n) {
            const Injection& item = injections[n];
            if (item.kind != "flip") continue;
            const size_t gpu = std::stoul(item.words.at(0));
            const Variable& memory = variable(static_cast<int>(gpu), item.words.at(1));
            const uint64_t word = std::stoull(item.words.at(2));
            if (memory.words > 1 && word < memory.words && item.cycle)
                first_uses[n] = listener.watch(gpu, memory.data + word * memory.bytes, item.cycle - 1);
        }
        touch_listener = &listener;
    }

    // The cycle in which an injection may as well take place: until then nobody would notice. What is never used is flipped
    // at the end.
    uint64_t beginning(size_t number) const {
        const uint64_t asked = injections[number].cycle;
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
        for (const auto& [name, item] : state.at(0)) {
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

    static inline const std::string ARRAY = ".array.sectors";

    System& system;
    const Session& session;
    const uint64_t bound, slice, grid;
    std::vector<std::map<std::string, Variable>> state;
    std::vector<Held> registers, statistics, counters;
    std::vector<const Variable*> dead;
    // What only records, and bits of its first byte, if the others do not; statistics that grow by what is counted.
    std::vector<std::pair<std::string, unsigned char>> recorded;
    std::set<const Variable*> sums;
    std::vector<std::vector<Span>> decide;
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
    std::vector<Sector> sectors;
    std::vector<Injection> injections;
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
