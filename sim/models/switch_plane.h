// One lane of a switch, compiled (`Vswitch`), which is advanced beside the GPUs as one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "Vswitch.h"
#include "switch_ports.h"
#include "wire_ends.h"

class SwitchPlane : public WireEnds {
public:
    // Joined to `gpus` GPUs, by the ports of their ranks.
    SwitchPlane(int number, int gpus, std::shared_ptr<VerilatedContext> shared)
        : context{std::move(shared)}, gpus{gpus}, model{context.get(), ("switch" + std::to_string(number)).c_str()} {
        model.rst = 1;
        model.clk = 0;
        std::fill_n(model.inputs.data(), sizeof(model.inputs) / sizeof(uint32_t), 0);
        set_bits(model.inputs.data(), switch_ports::PRESENT, (uint64_t{1} << gpus) - 1);
    }

    ~SwitchPlane() override { Verilated::threadContextp(context.get()); }

    Field place(bool flits, bool enters, uint64_t port) const override {
        const auto& fields = flits ? enters ? switch_ports::LINK_IN : switch_ports::LINK_OUT
                                   : enters ? switch_ports::MESSAGES_IN : switch_ports::MESSAGES_OUT;
        return fields[port];
    }

    void settle() { model.eval(); }
    void end_reset() { model.rst = 0; }
    void set_stall(uint64_t probability) { set_bits(model.inputs.data(), switch_ports::STALL, probability); }

    void rise(uint64_t now) {
        take_in(now, model.inputs.data(), {});
        model.clk = 1;
        model.eval();
    }

    void fall(uint64_t now) {
        model.clk = 0;
        model.eval();
        send_out(now, model.outputs.data());
    }

    // A packet was for nobody.
    bool stray() const { return get_bit(model.outputs.data(), switch_ports::STRAY); }

    // Cycles in which the link to each GPU moved bytes.
    std::vector<uint64_t> busy() const {
        std::vector<uint64_t> cycles;
        for (int port = 0; port < gpus; ++port)
            cycles.push_back(get_bits(model.outputs.data(), switch_ports::BUSY_CYCLES[port]));
        return cycles;
    }

    template <typename Trace>
    void trace(Trace* waves) {
        model.trace(waves, 99);
    }

    void final() {
        Verilated::threadContextp(context.get());
        model.final();
    }

    const std::shared_ptr<VerilatedContext> context;

private:
    const int gpus;
    Vswitch model;
};
