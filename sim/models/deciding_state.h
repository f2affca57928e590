// The state of a GPU that decides how it goes on, in models whose members C++ knows.
#pragma once

#include <set>

#include "digest.h"
#include "fault_plan.h"
// Of what `model_state.h` knows.
#include "members.h"

namespace {

// Bytes of a model that a digest is made of.
struct Span {
    const unsigned char* from;
    size_t bytes;
};

class DecidingState {
public:
    DecidingState(const Gpu& gpu, size_t number, const FaultPlan& plan) : gpu{gpu} {
        for (const auto& [name, item] : plan.state[number])
            if (ends_so(name, ARRAY)) memories.push_back(&item);
        for (const auto& [name, bits] : plan.recorded) recorded.emplace_back(&plan.variable(number, name), bits);
        spans = found_in(plan.state[number]);
    }

    // A digest of all but the memories and what only records.
    uint64_t control() const {
        Digest digest;
        for (const Span& span : spans) digest.add(span.from, span.bytes);
        for (const auto& [item, bits] : recorded)
            if (bits) digest.add<unsigned char>(*item->data & ~bits);
        for (const Input& input : gpu.arriving) digest.add(input.filled);
        return digest.value();
    }

    uint64_t memory() const {
        Digest digest;
        for (const Variable* item : memories) digest.add(item->data, item->bytes * item->words);
        return digest.value();
    }

private:
    // The bytes of all that decides how a GPU goes on, but its memory and what only records. What the logic of the design
    // makes of its state, and Verilator keeps in between, follows from that.
    std::vector<Span> found_in(const std::map<std::string, Variable>& state) const {
        const auto* const symbols = gpu.model.rootp->vlSymsp;
        const auto* const root = reinterpret_cast<const unsigned char*>(&symbols->TOP);
        std::set<const unsigned char*> kept;
        const auto& outputs = gpu.model.outputs;
        std::vector<Span> left_out{{reinterpret_cast<const unsigned char*>(outputs.data()), sizeof outputs}};
        for (const auto& [name, item] : state) {
            if (ends_so(name, ARRAY))
                left_out.push_back({item.data, item.bytes * item.words});
            else
                kept.insert(item.data);
        }
        for (const auto& [item, bits] : recorded) {
            kept.erase(item->data);
            left_out.push_back({item->data, item->bytes * item->words});
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

    const Gpu& gpu;
    std::vector<const Variable*> memories;
    std::vector<std::pair<const Variable*, unsigned char>> recorded;
    std::vector<Span> spans;
};

}  // namespace
