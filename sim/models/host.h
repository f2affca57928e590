// The host of simulated GPUs: runs a program of AXI4-Lite accesses on them, one at a time, a step per clock cycle.
//
// A command has 64 bits: 63:60 operation, 55:50 GPU, 47:32 address, 31:0 data.
//   0 end    1 write    2 read (appends "GPU address data" to the answers, if there are any)
//   3 poll until (value & data) is not 0    4 write word `address` of the GPU's GEMM engine
//   5 poll until (value & data) is 0    6 wait `data` cycles    7 start the kernels
// A pulse of `go` starts at a command; the host is idle when an end is reached. `refused` stays set once an access was not
// answered with OKAY. With `stall` there are random gaps between accesses (probability / 256).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

// What the host drives on the ports of the GPU that it works on, and sees there.
struct HostRequest {
    uint32_t awaddr = 0, araddr = 0, data = 0, gemm_index = 0;
    bool awvalid = false, wvalid = false, bready = false, arvalid = false, rready = false, gemm_write = false;
    bool start = false;
};
struct HostAnswer {
    uint32_t rdata;
    bool awready, wready, bvalid, bokay, arready, rvalid, rokay;
};

class Host {
public:
    Host(std::vector<uint64_t> program, std::FILE* answers)
        : program{std::move(program)}, answers{answers}, lookaheads(this->program.size()) {
        for (size_t n = this->program.size(); n-- > 0;) lookaheads[n] = least_cycles(n);
    }

    // Go through another program at once; only while it is idle.
    void begin(std::vector<uint64_t> commands) {
        program = std::move(commands);
        lookaheads.assign(program.size(), 0);
        for (size_t n = program.size(); n-- > 0;) lookaheads[n] = least_cycles(n);
        counter = 0;
        state = State::FETCH;
    }
    // What was read last.
    uint32_t seen() const { return value; }

    void set_stall(uint32_t probability) { stall = probability; }
    void set_go(bool value) { go = value; }
    void set_start(size_t command) { start = command; }
    bool idle() const { return state == State::IDLE && !go; }
    bool refused() const { return refusal; }
    // The GPU on whose ports the next step drives or looks at anything.
    int target() const { return state == State::FETCH ? gpu(counter) : select; }

    // The host neither turns to another GPU nor becomes idle in so many steps, but perhaps with the last of them.
    uint64_t lookahead() const {
        switch (state) {
            case State::IDLE: return 1;
            case State::FETCH: return lookaheads[counter];
            default: return 1 + after(counter);
        }
    }

    HostRequest request() const {
        HostRequest made = driven;
        made.bready = state == State::ANSWER;
        made.rready = state == State::DATA;
        made.gemm_write = state == State::GEMM;
        made.start = state == State::START;
        return made;
    }

    // A rising edge of the clock; `seen`: the ports of `target` before it.
    void step(const HostAnswer& seen) {
        const uint32_t drawn = noise & 0xff;
        noise = noise << 1 | ((noise >> 31 ^ noise >> 21 ^ noise >> 1 ^ noise) & 1);
        const bool begins = go && !was_going;
        was_going = go;
        switch (state) {
            case State::IDLE:
                if (begins) {
                    counter = start;
                    state = State::FETCH;
                }
                break;
            case State::FETCH:
                if (drawn >= stall) fetch();
                break;
            case State::WRITE: {
                const bool address_taken = seen.awready || !driven.awvalid, data_taken = seen.wready || !driven.wvalid;
                if (seen.awready) driven.awvalid = false;
                if (seen.wready) driven.wvalid = false;
                if (address_taken && data_taken) state = State::ANSWER;
                break;
            }
            case State::ANSWER:
                if (seen.bvalid) {
                    refusal |= !seen.bokay;
                    ++counter;
                    state = State::FETCH;
                }
                break;
            case State::READ:
                if (seen.arready) {
                    driven.arvalid = false;
                    state = State::DATA;
                }
                break;
            case State::DATA:
                if (seen.rvalid) {
                    refusal |= !seen.rokay;
                    value = seen.rdata;
                    if (operation(counter) == 2) {
                        if (answers) std::fprintf(answers, "%d %u %u\n", select, driven.araddr, seen.rdata);
                        ++counter;
                    } else if (((seen.rdata & static_cast<uint32_t>(program[counter])) != 0) == (operation(counter) == 3)) {
                        ++counter;
                    }
                    state = State::FETCH;
                }
                break;
            case State::WAIT:
                if (--left) break;
                [[fallthrough]];
            case State::GEMM:
            case State::START:
                ++counter;
                state = State::FETCH;
                break;
        }
    }

private:
    enum class State { IDLE, FETCH, WRITE, ANSWER, READ, DATA, GEMM, WAIT, START };

    int operation(size_t command) const { return static_cast<int>(program[command] >> 60); }
    int gpu(size_t command) const { return static_cast<int>(program[command] >> 50 & 63); }
    bool ends(size_t command) const { return operation(command) == 0; }

    // Steps from the fetch of `command` on: without answers a write takes three, a word of a GEMM engine two, as a start; a wait
    // not less.
    uint64_t least_cycles(size_t command) const {
        return ends(command) ? 1 : (operation(command) == 4 || operation(command) >= 6 ? 2 : 3) + after(command);
    }

    // Steps that the commands after `command` take on the same GPU.
    uint64_t after(size_t command) const {
        return command + 1 < program.size() && (ends(command + 1) || gpu(command + 1) == gpu(command))
                   ? lookaheads[command + 1]
                   : 0;
    }

    void fetch() {
        const uint64_t command = program[counter];
        if (ends(counter)) {
            state = State::IDLE;
            return;
        }
        select = gpu(counter);
        driven.awaddr = driven.araddr = static_cast<uint32_t>(command >> 32 & 0xffff);
        driven.gemm_index = static_cast<uint32_t>(command >> 32 & 31);
        driven.data = static_cast<uint32_t>(command);
        switch (operation(counter)) {
            case 1:
                driven.awvalid = driven.wvalid = true;
                state = State::WRITE;
                break;
            case 4: state = State::GEMM; break;
            case 6:
                left = std::max<uint64_t>(1, driven.data);
                state = State::WAIT;
                break;
            case 7: state = State::START; break;
            default:
                driven.arvalid = true;
                state = State::READ;
        }
    }

    std::vector<uint64_t> program;
    std::FILE* const answers;
    std::vector<uint64_t> lookaheads;
    State state = State::IDLE;
    HostRequest driven;
    size_t counter = 0, start = 0;
    int select = 0;
    uint64_t left = 0;
    uint32_t value = 0;
    uint32_t stall = 0, noise = 0x2545f491;
    bool go = false, was_going = false, refusal = false;
};
