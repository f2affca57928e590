// Makes what one GPU sends look like what another sends it (T3 section 5.1), where all do the same at the same time with
// other chunks: those of the sender are +mirror_shift further on. Headers of packets to one of two arrays (first sectors
// +mirror_first, +mirror_second, each +mirror_chunks chunks of +mirror_sectors) get the address of that chunk, wg numbers
// that of its tiles (+mirror_workgroups to a chunk), and rank 0 for their destination, which knows the sender as
// rank +mirror_shift; the check is made anew.
//
// `flit` and `mirrored` are valid and a flit, from the lowest bit on; fields lie at the positions given, bits of the flit
// below `CHECK` are what is checked. No latency.
module mirror #(
    parameter WIDTH = 2, KIND = 1, HEADER = 1, CHECK = 2,
    parameter VA = 0, VA_BITS = 43, WG = 43, WG_BITS = 16, SOURCE = 0, DESTINATION = 0
) (
    input  logic [WIDTH - 1:0] flit,
    output logic [WIDTH - 1:0] mirrored
);
    longint first = 0, second = 0, sectors = 1, chunks = 1, workgroups = 1, shift = 0;
    initial begin
        void'($value$plusargs("mirror_first=%d", first));
        void'($value$plusargs("mirror_second=%d", second));
        void'($value$plusargs("mirror_sectors=%d", sectors));
        void'($value$plusargs("mirror_chunks=%d", chunks));
        void'($value$plusargs("mirror_workgroups=%d", workgroups));
        void'($value$plusargs("mirror_shift=%d", shift));
    end

    // CRC-24 of FlexRay over the bits of the flit below the check, the lowest first; the check's lowest bit is that of x^23.
    function automatic logic [23:0] crc_24(input logic [WIDTH - 1:0] whole);
        logic [23:0] sum;
        sum = 24'hffffff;
        for (int n = 1; n < CHECK; n++) sum = {sum[22:0], 1'b0} ^ ((sum[23] ^ whole[n]) ? 24'h5d6dcb : 24'h0);
        return {<<{sum}};
    endfunction

    function automatic longint shifted(input longint value, input longint size);
        return value >= (chunks - shift) * size ? value + (shift - chunks) * size : value + shift * size;
    endfunction

    always_comb begin
        longint va, wg;
        mirrored = flit;
        if (flit[0] && flit[KIND +: 2] == HEADER) begin
            va = 64'(flit[VA +: VA_BITS]);
            wg = 64'(flit[WG +: WG_BITS]);
            if (va >= first && va < first + chunks * sectors) begin
                mirrored[VA +: VA_BITS] = VA_BITS'(first + shifted(va - first, sectors));
                mirrored[WG +: WG_BITS] = WG_BITS'(shifted(wg, workgroups));
            end else if (va >= second && va < second + chunks * sectors)
                mirrored[VA +: VA_BITS] = VA_BITS'(second + shifted(va - second, sectors));
            mirrored[SOURCE +: 6] = 6'(shift);
            mirrored[DESTINATION +: 6] = 0;
            mirrored[CHECK +: 24] = crc_24(mirrored);
        end
    end
endmodule
