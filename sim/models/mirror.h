// Makes what one GPU sends look like what another sends it (T3 section 5.1), where all do the same at the same time with
// other chunks: those of the sender are `shift` further on. Headers of packets to one of the `arrays` get the address of
// that chunk and the wg number of its tile, rank 0 for their destination, which knows the sender as rank `shift`; the check
// is made anew.
#pragma once

#include <vector>

#include "bits.h"
#include "gpu_ports.h"

// From sector `first` on `chunks` chunks of `sectors`, whose tiles are numbered from `wg` on, `workgroups` to a chunk; 0
// where tiles have no numbers.
struct MirroredArray {
    int64_t first, sectors, chunks, wg, workgroups;
};

struct Mirror {
    std::vector<MirroredArray> arrays;

    // `flit`: a valid bit and a flit.
    void rewrite(uint32_t* flit, int64_t shift) const {
        if (get_bits(flit, ports::FLIT_KIND) != ports::HEADER) return;
        const int64_t va = static_cast<int64_t>(get_bits(flit, ports::HEADER_VA));
        for (const MirroredArray& array : arrays) {
            if (va < array.first || va >= array.first + array.chunks * array.sectors) continue;
            set_bits(flit, ports::HEADER_VA, shifted(array, va, array.first, array.sectors, shift));
            const int64_t wg = static_cast<int64_t>(get_bits(flit, ports::HEADER_WG));
            if (array.workgroups) set_bits(flit, ports::HEADER_WG, shifted(array, wg, array.wg, array.workgroups, shift));
            break;
        }
        set_bits(flit, ports::HEADER_SOURCE, shift);
        set_bits(flit, ports::HEADER_DESTINATION, 0);
        set_bits(flit, ports::FLIT_CRC, crc(flit));
    }

private:
    static int64_t shifted(const MirroredArray& array, int64_t value, int64_t first, int64_t size, int64_t shift) {
        const int64_t whole = array.chunks * size;
        return first + (value - first + shift * size) % whole;
    }

    // CRC-24 of FlexRay over the bits of the flit below the CRC, the lowest first; the lowest bit of the CRC is that of x^23.
    static uint32_t crc(const uint32_t* flit) {
        uint32_t sum = 0xffffff;
        for (int n = 1; n < ports::FLIT_CRC.low; ++n) {
            const bool bit = (sum >> 23 ^ flit[n / 32] >> (n % 32)) & 1;
            sum = (sum << 1 & 0xffffff) ^ (bit ? 0x5d6dcb : 0);
        }
        uint32_t reversed = 0;
        for (int n = 0; n < 24; ++n) reversed |= (sum >> n & 1) << (23 - n);
        return reversed;
    }
};
