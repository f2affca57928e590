// The state of a GPU's model as C++ can see it, in models of which state is public (`sim/simulator/public_state.py`).
#pragma once

#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

#include "Vgpu__Syms.h"
#include "gpu.h"
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

bool ends_so(const std::string& name, const std::string& end) {
    return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

// The logic behind flip-flops and memories follows what was changed in them.
void settle(Gpu& gpu) {
    Verilated::threadContextp(gpu.context.get());
    Vgpu___024root___eval_settle(gpu.model.rootp);
}

}  // namespace
