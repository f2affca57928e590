// In the place of `switch_plane.h`, of a system without a switch.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "verilated.h"
#include "wire_ends.h"

class SwitchPlane : public WireEnds {
public:
    SwitchPlane(int, int, const std::shared_ptr<VerilatedContext>&) {
        throw std::runtime_error("this model was built without a switch");
    }
    Field place(bool, bool, uint64_t) const override { return {}; }
    void settle() {}
    void end_reset() {}
    void set_stall(uint64_t) {}
    void rise(uint64_t) {}
    void fall(uint64_t) {}
    bool stray() const { return false; }
    std::vector<uint64_t> busy() const { return {}; }
    template <typename Trace>
    void trace(Trace*) {}
    void final() {}

    const std::shared_ptr<VerilatedContext> context;
};
