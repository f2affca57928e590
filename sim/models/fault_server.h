// A fork server of runs in which something goes wrong: a part of `gpus.cpp`, in models whose state C++ can see (built with
// T3_FAULTS, `sim/simulator/public_state.py`).
//
// A run is two collectives, one after the other, on the same tables, so that what the first has left behind shows in the
// second. A process goes once to the end and notes what is right, and digests of the whole state by the way. Then it goes
// again, stops before every cycle in which something is to go wrong, and forks: the child does it, goes on, and says what
// came of it; a child whose whole state is again what it was without a fault need not go to the end.
//
// Session: phases of the host's program `before`, `settle`, `guard`, `setup`; `again`, the second collective; `abort_N`, by
// GPU N; `drained`, nothing of an epoch is left anywhere; `acknowledge`, interrupts are cleared. `bound`: cycles that a
// collective may take; `grid`: cycles between two digests; `compare`: whether results are compared. Lines of the file
// campaign.txt, where a name is that of a variable, a GPU a number:
//   register NAME                              must be in the end what it is without a fault
//   statistic NAME                             the same, if a bit of it was flipped: others may count otherwise
//   counter NAME                               counts what hardware has corrected
//   dead END                                   variables whose names end so are not 0 when a link is dead
//   result GPU CHANNEL FIRST COUNT             sectors of the result
//   inject NUMBER CYCLE flip GPU NAME WORD BIT
//   inject NUMBER CYCLE wire {GPU PORT flits|messages {damage|drop|double|reorder|cut SKIP BIT} ... and} ...
//   inject NUMBER CYCLE abort GPU
//   inject NUMBER CYCLE nothing
// Injections are in the order of their cycles; each gets a line on standard output, NUMBER and `Facts`. What the run without
// a fault was is left in reference.txt. Without injections that is all, with a list of all state in state.txt, and a dump of
// the memories.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include "Vgpu__Syms.h"
#include "verilated_syms.h"

void Vgpu___024root___eval_settle(Vgpu___024root*);

namespace {

// A variable of a model that holds state: so many words.
struct Variable {
    unsigned char* data;
    int bits, bytes;
    uint64_t words;

    void flip(uint64_t word, int bit) const {
        if (word >= words || bit < 0 || bit >= bits) throw std::runtime_error("a bit that a variable does not have");
        data[word * bytes + bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    }
};

// A variable's name as the design has it: not escaped, and without what sets a flip-flop apart from its port.
std::string plain(std::string name) {
    static const std::string own = "__state";
    if (name.front() == '\\') name = name.substr(1, name.find(' ') - 1);
    if (name.size() > own.size() && name.compare(name.size() - own.size(), own.size(), own) == 0)
        name.resize(name.size() - own.size());
    return name;
}

// All state of a GPU by name, without that of the model.
std::map<std::string, Variable> variables(Gpu& gpu) {
    std::map<std::string, Variable> found;
    for (const auto& [scope_name, scope] : *gpu.context->scopeNameMap()) {
        if (!scope->varsp() || !std::strchr(scope_name, '.')) continue;
        for (const auto& [name, variable] : *scope->varsp()) {
            uint64_t words = 1;
            for (const auto& range : variable.unpackedRanges()) words *= range.elements();
            found[std::string{std::strchr(scope_name, '.') + 1} + "." + plain(name)] = {
                static_cast<unsigned char*>(variable.datap()), static_cast<int>(variable.entBits()),
                static_cast<int>(variable.entSize()), words};
        }
    }
    return found;
}

// The logic behind flip-flops and memories follows what was changed in them.
void settle(Gpu& gpu) {
    Verilated::threadContextp(gpu.context.get());
    Vgpu___024root___eval_settle(gpu.model.rootp);
}

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

// What is right: digests of what is compared, by collective where there are two, and of the whole state by cycle.
struct Reference {
    std::vector<uint64_t> sectors[2], registers, statistics;
    int64_t corrected = 0;
    std::map<uint64_t, uint64_t> whole;
};

class FaultServer {
public:
    FaultServer(System& system, const Session& session)
        : system{system}, session{session}, bound{session.number("bound")}, slice{session.number("epoch")},
          grid{session.number("grid")} {
        for (const auto& gpu : system.all()) state.push_back(variables(*gpu));
        read_plan();
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
        if (const pid_t recorder = fork(); recorder == 0) {
            record();
            _exit(0);
        } else {
            int status = 0;
            if (waitpid(recorder, &status, 0) < 0 || status) throw std::runtime_error("the run without a fault failed");
        }
        read_reference();
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
                const Variable& memory = variable(gpu, "gpu_shell.gpu.hbm_" + std::to_string(channel) + ".array.sectors");
                for (uint64_t n = first; n < first + count; ++n) sectors.push_back({&memory, n});
            } else if (key == "dead") {
                words >> name;
                add_ending(name);
            } else {
                words >> name;
                std::map<std::string, std::vector<const Variable*>*> lists{
                    {"register", &registers}, {"statistic", &statistics}, {"counter", &counters}};
                auto& list = *lists.at(key);
                for (size_t gpu = 0; gpu < state.size(); ++gpu) list.push_back(&variable(gpu, name));
            }
        }
        if (dead.empty()) throw std::runtime_error("nothing tells of dead links");
    }

    void add_ending(const std::string& end) {
        for (const auto& of_gpu : state)
            for (const auto& [name, item] : of_gpu)
                if (name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0)
                    dead.push_back(&item);
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

    static uint64_t digest_of(const Variable& variable, uint64_t word) {
        Digest digest;
        digest.add(variable.data + word * variable.bytes, variable.bytes);
        return digest.value();
    }

    static uint64_t differing(const std::vector<uint64_t>& found, const std::vector<uint64_t>& right) {
        uint64_t count = found.size() != right.size();
        for (size_t n = 0; n < std::min(found.size(), right.size()); ++n) count += found[n] != right[n];
        return count;
    }

    void compare(int number) {
        std::vector<uint64_t> found;
        for (const auto& [memory, sector] : sectors) found.push_back(digest_of(*memory, sector));
        if (!injected)
            reference.sectors[number] = found;
        else if (session.number("compare") && (number == 1 || !recovered))
            facts.wrong_sectors += differing(found, reference.sectors[number]);
    }

    static std::vector<uint64_t> digests_of(const std::vector<const Variable*>& list) {
        std::vector<uint64_t> found;
        for (const Variable* item : list) {
            Digest digest;
            digest.add(item->data, item->bytes * item->words);
            found.push_back(digest.value());
        }
        return found;
    }

    void finish() {
        const auto held = digests_of(registers), counted = digests_of(statistics);
        int64_t sum = 0;
        for (const Variable* item : counters)
            if (item != hit) sum += *reinterpret_cast<const int64_t*>(item->data);
        if (!injected) {
            reference.registers = held;
            reference.statistics = counted;
            reference.corrected = sum;
            return;
        }
        facts.wrong_registers = differing(held, reference.registers);
        for (size_t n = 0; n < statistics.size(); ++n)
            if (statistics[n] == hit) facts.wrong_registers += counted[n] != reference.statistics.at(n);
        facts.corrected = sum - reference.corrected;
    }

    // A digest of all that decides how it goes on.
    uint64_t whole() const {
        Digest digest;
        for (const auto& gpu : system.all()) {
            const auto* const symbols = gpu->model.rootp->vlSymsp;
            const auto* const from = reinterpret_cast<const char*>(&symbols->TOP);
            digest.add(from, reinterpret_cast<const char*>(symbols) + sizeof *symbols - from);
            for (const Input& input : gpu->arriving) digest.add(input.filled);
        }
        system.add_to(digest);
        return digest.value();
    }

    void stopped() {
        const uint64_t now = system.cycle();
        if (recording) {
            reference.whole[now] = whole();
            system.stop_at(now + grid);
        } else if (injected) {
            const bool quiet = std::all_of(tampers.begin(), tampers.end(), [](const auto& item) { return item->done(); });
            const auto right = reference.whole.find(now);
            if (quiet && right != reference.whole.end() && right->second == whole()) {
                facts.finished = true;
                facts.converged = now;
                throw Over{};
            }
            distance *= 2;
            system.stop_at((now / grid + distance) * grid);
        } else {
            for (; next < injections.size() && injections[next].cycle == now; ++next)
                if (is_child(injections[next])) {
                    inject();
                    return;
                }
            if (next == injections.size()) throw Over{};
            system.stop_at(injections[next].cycle);
        }
    }

    // Forks. The child is to go on; what it answers is printed.
    bool is_child(const Injection& injection) {
        int ends[2];
        if (pipe(ends)) throw std::runtime_error("no pipe can be made");
        const pid_t child = fork();
        if (child < 0) throw std::runtime_error("no process can be made");
        if (child == 0) {
            close(ends[0]);
            answers = ends[1];
            injected = &injection;
            return true;
        }
        close(ends[1]);
        char text[256];
        size_t length = 0;
        for (ssize_t got; (got = read(ends[0], text + length, sizeof text - length)) > 0;) length += got;
        close(ends[0]);
        int status = 0;
        waitpid(child, &status, 0);
        if (status || !length)
            std::printf("%s died %d\n", injection.number.c_str(), status);
        else
            std::printf("%s %.*s\n", injection.number.c_str(), static_cast<int>(length), text);
        std::fflush(stdout);
        return false;
    }

    void answer() {
        facts.harmed = std::any_of(system.all().begin(), system.all().end(),
                                   [](const auto& gpu) { return gpu->is(ports::STRAY) || gpu->is(ports::VIOLATION); });
        for (const auto& item : tampers) facts.fired = facts.fired && item->fired();
        facts.end = system.cycle();
        const std::string line = facts.line();
        if (write(answers, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(1);
        _exit(0);
    }

    void inject() {
        const std::vector<std::string>& words = injected->words;
        system.stop_at((system.cycle() / grid + 1) * grid);
        if (injected->kind == "flip") {
            const int gpu = std::stoi(words.at(0));
            hit = &variable(gpu, words.at(1));
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
        for (const auto& gpu : system.all())
            for (Output& item : gpu->leaving) tampered(item);
        system.stop_at(grid);
        try {
            run();
        } catch (const Over&) {
            throw std::runtime_error("the run without a fault did not come to its end");
        }
        std::ofstream file{"reference.txt"};
        for (int number : {0, 1}) {
            file << "span " << begun[number] << " " << over[number] << "\nsectors";
            for (const uint64_t value : reference.sectors[number]) file << " " << value;
            file << "\n";
        }
        for (const auto& [name, list] : {std::pair{"registers", &reference.registers}, {"statistics", &reference.statistics}}) {
            file << name;
            for (const uint64_t value : *list) file << " " << value;
            file << "\n";
        }
        file << "corrected " << reference.corrected << "\n";
        for (const auto& [cycle, value] : reference.whole) file << "whole " << cycle << " " << value << "\n";
        for (size_t gpu = 0; gpu < system.all().size(); ++gpu)
            for (int port = 0; port < ports::LINKS; ++port)
                for (const char* kind : {"flits", "messages"}) list_sent(file, gpu, port, kind);
        if (!file.flush()) throw std::runtime_error("reference.txt cannot be written");
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
            const uint64_t changed = digest_of(item, item.words - 1);
            settle(gpu);
            const bool kept = digest_of(item, item.words - 1) == changed;
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
            if (key == "whole") {
                uint64_t cycle, value;
                words >> cycle >> value;
                reference.whole[cycle] = value;
            } else if (key == "corrected") {
                words >> reference.corrected;
            } else if (key == "sectors" || key == "registers" || key == "statistics") {
                auto& list = key == "registers"    ? reference.registers
                             : key == "statistics" ? reference.statistics
                                                   : reference.sectors[number];
                for (uint64_t value; words >> value;) list.push_back(value);
            }
        }
    }

    System& system;
    const Session& session;
    const uint64_t bound, slice, grid;
    std::vector<std::map<std::string, Variable>> state;
    std::vector<const Variable*> registers, statistics, counters, dead;
    // What a bit was flipped in, or null.
    const Variable* hit = nullptr;
    std::vector<std::pair<const Variable*, uint64_t>> sectors;
    std::vector<Injection> injections;
    size_t next = 0;
    Reference reference;
    Facts facts;
    std::vector<std::unique_ptr<Tamper>> tampers;
    uint64_t begun[2] = {0, 0}, over[2] = {0, 0}, distance = 1;
    bool recording = false, recovered = false;
    const Injection* injected = nullptr;
    int answers = -1;
};

void serve(System& system, const Session& session) { FaultServer{system, session}.serve(); }

}  // namespace
