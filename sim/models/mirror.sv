// Makes what one GPU sends look like what another sends it (T3 section 5.1), where all do the same at the same time with
// other chunks: those of the sender are +mirror_shift further on. Headers of packets to one of two arrays (first sectors
// +mirror_first, +mirror_second, each +mirror_chunks chunks of +mirror_sectors) get the address of that chunk, wg numbers
// that of its tiles (+mirror_workgroups to a chunk), and rank 0 for their destination; the check is made anew.
//
// `flit` and `mirrored` are valid, header, last and data from the lowest bit on; a header's fields lie at the positions
// given. No latency.
module mirror #(
    parameter VA = 0, VA_BITS = 43, WG = 43, WG_BITS = 16, DESTINATION = 0, CRC = 0
) (
    input  logic [258:0] flit,
    output logic [258:0] mirrored
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

    // CRC-16/CCITT-FALSE over the bits below `check`, the lowest first.
    function automatic logic [15:0] crc_16(input logic [255:0] header);
        logic [15:0] sum;
        sum = 16'hffff;
        for (int n = 0; n < CRC; n++) sum = {sum[14:0], 1'b0} ^ ((sum[15] ^ header[n]) ? 16'h1021 : 16'h0);
        return sum;
    endfunction

    function automatic longint shifted(input longint value, input longint size);
        return value >= (chunks - shift) * size ? value + (shift - chunks) * size : value + shift * size;
    endfunction

    always_comb begin
        longint va, wg;
        mirrored = flit;
        if (flit[0] && flit[1]) begin
            va = 64'(flit[3 + VA +: VA_BITS]);
            wg = 64'(flit[3 + WG +: WG_BITS]);
            if (va >= first && va < first + chunks * sectors) begin
                mirrored[3 + VA +: VA_BITS] = VA_BITS'(first + shifted(va - first, sectors));
                mirrored[3 + WG +: WG_BITS] = WG_BITS'(shifted(wg, workgroups));
            end else if (va >= second && va < second + chunks * sectors)
                mirrored[3 + VA +: VA_BITS] = VA_BITS'(second + shifted(va - second, sectors));
            mirrored[3 + DESTINATION +: 6] = 0;
            mirrored[3 + CRC +: 16] = crc_16(mirrored[258:3]);
        end
    end
endmodule
