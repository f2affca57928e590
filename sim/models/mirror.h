// Makes what one GPU sends look like what another sends it (T3 section 5.1), where all do the same at the same time with
// other chunks: those of the sender are `shift` further on. Headers of packets to one of two arrays (first sectors `first`
// and `second`, each `chunks` chunks of `sectors`) get the address of that chunk, wg numbers that of its tiles
// (`workgroups` to a chunk), and rank 0 for their destination, which knows the sender as rank `shift`; the check is made
// anew.
#pragma once

#include "bits.h"
#include "gpu_ports.h"

struct Mirror {
    int64_t first = 0, second = 0, sectors = 1, chunks = 1, workgroups = 1, shift = 0;

    // `flit`: a valid bit and a flit.
    void rewrite(uint32_t* flit) const {
        if (get_bits(flit, ports::FLIT_KIND) != ports::HEADER) return;
        const int64_t va = static_cast<int64_t>(get_bits(flit, ports::HEADER_VA));
        if (va >= first && va < first + chunks * sectors) {
            set_bits(flit, ports::HEADER_VA, first + shifted(va - first, sectors));
            set_bits(flit, ports::HEADER_WG, shifted(get_bits(flit, ports::HEADER_WG), workgroups));
        } else if (va >= second && va < second + chunks * sectors) {
            set_bits(flit, ports::HEADER_VA, second + shifted(va - second, sectors));
        }
        set_bits(flit, ports::HEADER_SOURCE, shift);
        set_bits(flit, ports::HEADER_DESTINATION, 0);
        set_bits(flit, ports::FLIT_CHECK, check(flit));
    }

private:
    int64_t shifted(int64_t value, int64_t size) const {
        return value >= (chunks - shift) * size ? value + (shift - chunks) * size : value + shift * size;
    }

    // CRC-24 of FlexRay over the bits of the flit below the check, the lowest first; the check's lowest bit is that of x^23.
    static uint32_t check(const uint32_t* flit) {
        uint32_t sum = 0xffffff;
        for (int n = 1; n < ports::FLIT_CHECK.low; ++n) {
            const bool bit = (sum >> 23 ^ flit[n / 32] >> (n % 32)) & 1;
            sum = (sum << 1 & 0xffffff) ^ (bit ? 0x5d6dcb : 0);
        }
        uint32_t reversed = 0;
        for (int n = 0; n < 24; ++n) reversed |= (sum >> n & 1) << (23 - n);
        return reversed;
    }
};
