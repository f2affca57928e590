// One GPU of a system: its model, and what enters and leaves it.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "bits.h"
#include "gpu_model.h"
#include "gpu_ports.h"
#include "history.h"
#include "host.h"
#include "mirror.h"
#include "verilated.h"
#include "wire_ends.h"

namespace {

class Gpu : public WireEnds {
public:
    Gpu(int rank, std::shared_ptr<VerilatedContext> shared)
        : context{std::move(shared)}, model{context.get(), ("gpu" + std::to_string(rank)).c_str()} {
        model.rank = rank;
        model.rst = 1;
        model.clk = 0;
        std::fill(inputs(), inputs() + sizeof(model.inputs) / sizeof(uint32_t), 0);
    }

    // A model that goes looks for what it has in the context of the thread.
    ~Gpu() override { Verilated::threadContextp(context.get()); }

    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    Field place(bool flits, bool enters, uint64_t port) const override {
        const auto& fields = flits ? enters ? ports::LINK_IN : ports::LINK_OUT
                                   : enters ? ports::MESSAGES_IN : ports::MESSAGES_OUT;
        return fields[port];
    }

    uint32_t* inputs() { return model.inputs.data(); }
    const uint32_t* outputs() const { return shown ? shown : model.outputs.data(); }
    bool is(Field flag) const { return get_bit(outputs(), flag); }
    bool done() const { return is(ports::DONE) && !is(ports::BUSY); }
    bool bad() const {
        return is(ports::VIOLATION) || is(ports::STRAY) || is(ports::READ_ERROR) || is(ports::INTERRUPT);
    }

    // The status as hexadecimal digits.
    std::string status() const {
        std::string digits;
        for (int n = (ports::STATUS.width - 1) / 4; n >= 0; --n) {
            const int low = 4 * n, width = std::min(4, ports::STATUS.width - low);
            digits += "0123456789abcdef"[get_bits(outputs(), {ports::STATUS.low + low, width})];
        }
        return digits;
    }

    void drive(const HostRequest& request) {
        uint32_t* const to = inputs();
        set_bits(to, ports::AXI_AWADDR, request.awaddr);
        set_bits(to, ports::AXI_AWVALID, request.awvalid);
        set_bits(to, ports::AXI_WDATA, request.data);
        set_bits(to, ports::AXI_WSTRB, 0xf);
        set_bits(to, ports::AXI_WVALID, request.wvalid);
        set_bits(to, ports::AXI_BREADY, request.bready);
        set_bits(to, ports::AXI_ARADDR, request.araddr);
        set_bits(to, ports::AXI_ARVALID, request.arvalid);
        set_bits(to, ports::AXI_RREADY, request.rready);
        const uint64_t write = static_cast<uint64_t>(request.data) << 6 | request.gemm_index << 1 | request.gemm_write;
        set_bits(to, ports::WRITE, write);
        // What starts all GPUs at once is no request's.
        if (request.start != starting) set_bits(to, ports::START, request.start);
        starting = request.start;
    }

    HostAnswer answer() const {
        const uint32_t* const from = outputs();
        return {
            .rdata = static_cast<uint32_t>(get_bits(from, ports::AXI_RDATA)),
            .awready = get_bit(from, ports::AXI_AWREADY),
            .wready = get_bit(from, ports::AXI_WREADY),
            .bvalid = get_bit(from, ports::AXI_BVALID),
            .bokay = get_bits(from, ports::AXI_BRESP) == 0,
            .arready = get_bit(from, ports::AXI_ARREADY),
            .rvalid = get_bit(from, ports::AXI_RVALID),
            .rokay = get_bits(from, ports::AXI_RRESP) == 0,
        };
    }

    // The rising edge of the clock in cycle `now`. The host's request is what it drove before it.
    void rise(uint64_t now, Host* host, const Mirror& mirror) {
        take_in(now, inputs(), mirror);
        if (host) {
            if (!host->idle()) drive(host->request());
            host->step(answer());
        }
        if (recorded) recorded->enter(now, inputs());
        if (asleep()) {
            if (followed->enters(now, inputs())) return;
            wake(now);
        }
        model.clk = 1;
        model.eval();
    }

    // The falling edge after it, from which on the outputs of the cycle `now` stand.
    void fall(uint64_t now) {
        if (asleep()) {
            shown = followed->left(now);
        } else {
            model.clk = 0;
            model.eval();
        }
        if (recorded) recorded->leave(now, outputs());
        trouble |= bad();
        send_out(now, outputs());
    }

    // From cycle `now` on it is not simulated as long as it is given what it was given in `history`, whose state before that
    // cycle is its own: it shows what it did there. The first other word wakes it: then it goes through those cycles.
    void sleep(const History& history, uint64_t now) {
        followed = &history;
        since = now;
        shown = history.left(now - 1);
    }
    bool asleep() const { return followed; }

    // Its state is to be that before cycle `now`.
    void wake(uint64_t now) {
        if (!asleep()) return;
        const auto given = model.inputs;
        for (uint64_t cycle = since; cycle < now; ++cycle) {
            std::memcpy(inputs(), followed->entered(cycle), sizeof(model.inputs));
            model.clk = 1;
            model.eval();
            model.clk = 0;
            model.eval();
        }
        model.inputs = given;
        followed = nullptr;
        shown = nullptr;
    }

    std::shared_ptr<VerilatedContext> context;
    GpuModel model;
    // Whether something was bad in any cycle since this was last cleared.
    bool trouble = false;
    // Where all that enters and leaves is noted, or null.
    History* recorded = nullptr;

private:
    bool starting = false;
    const History* followed = nullptr;
    const uint32_t* shown = nullptr;
    uint64_t since = 0;
};

}  // namespace
