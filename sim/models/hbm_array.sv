// Storage of one simulated HBM channel: SECTORS sectors of 256 bits, each with an epoch tag. Not synthesizable.
//
// Write-first: a read sees the writes of its own cycle; the data of a read comes one cycle later. One write port per bank
// group (their sectors differ). The content starts as a hash of the address with tag 0, an epoch that is never armed;
// reads beyond SECTORS give the same hash, writes beyond are ignored.
//   sector(a) = {word(a,7), ..., word(a,0)},  word(a,w) = lowbias32(8 a + w)
// where lowbias32 is C. Wellons' 32-bit mixing function. At the first clock edge, when `id` is known, what lies in memory
// before a run is read from "<prefix><id>.hex", prefix from +hbm_initial=<prefix>, if that is given (the tags stay 0).
// On a rising edge of `dump` the data (the first +hbm_dump_sectors=<number>, else all) is written by $writememh to
// "<prefix><id>.hex", prefix from +hbm_dump=<prefix>; on a rising edge of `load` it is read from there, prefix from +hbm_load=<prefix> (the tags stay).
module hbm_array #(
    parameter SECTORS = 16384,
    parameter EPOCH_BITS = 8
) (
    input  logic         clk,
    input  logic         read_valid,
    input  logic [24:0]  read_address,
    output logic [255:0] read_data,
    output logic [EPOCH_BITS-1:0] read_epoch,
    input  logic         write_valid_0, write_valid_1, write_valid_2, write_valid_3,
    input  logic [24:0]  write_address_0, write_address_1, write_address_2, write_address_3,
    input  logic [31:0]  write_mask_0, write_mask_1, write_mask_2, write_mask_3,
    input  logic [255:0] write_data_0, write_data_1, write_data_2, write_data_3,
    input  logic         write_mark_0, write_mark_1, write_mark_2, write_mark_3,
    input  logic [EPOCH_BITS-1:0] write_epoch_0, write_epoch_1, write_epoch_2, write_epoch_3,
    input  logic         load,
    input  logic         dump,
    input  logic [31:0]  id
);
    localparam INDEX_BITS = $clog2(SECTORS);
    logic [255:0] sectors[SECTORS];
    logic [EPOCH_BITS-1:0] tags[SECTORS];
    logic load_before = 0, dump_before = 0, begun = 0;
    string prefix;
    int dumped;

    function automatic logic [31:0] lowbias32(input logic [31:0] value);
        logic [31:0] x;
        x = value;
        x = (x ^ (x >> 16)) * 32'h7feb352d;
        x = (x ^ (x >> 15)) * 32'h846ca68b;
        return x ^ (x >> 16);
    endfunction

    function automatic logic [255:0] content(input logic [24:0] address);
        logic [28:0] first;
        first = {1'b0, address, 3'b0};
        for (int w = 0; w < 8; w++) content[32 * w +: 32] = lowbias32(32'(first) + w);
    endfunction

    task automatic put(
        input logic [24:0] address, input logic [31:0] mask, input logic [255:0] data, input logic mark,
        input logic [EPOCH_BITS-1:0] epoch
    );
        logic [INDEX_BITS-1:0] index;
        index = address[INDEX_BITS-1:0];
        if (address >> INDEX_BITS == 0) begin
            if (&mask) sectors[index] = data;
            else for (int b = 0; b < 32; b++) if (mask[b]) sectors[index][8 * b +: 8] = data[8 * b +: 8];
            if (mark) tags[index] = epoch;
        end
    endtask

    initial begin
        for (int n = 0; n < SECTORS; n++) begin
            sectors[n] = content(25'(n));
            tags[n] = 0;
        end
    end

    always @(posedge clk) begin
        if (write_valid_0) put(write_address_0, write_mask_0, write_data_0, write_mark_0, write_epoch_0);
        if (write_valid_1) put(write_address_1, write_mask_1, write_data_1, write_mark_1, write_epoch_1);
        if (write_valid_2) put(write_address_2, write_mask_2, write_data_2, write_mark_2, write_epoch_2);
        if (write_valid_3) put(write_address_3, write_mask_3, write_data_3, write_mark_3, write_epoch_3);
        if (read_valid) begin
            if (read_address >> INDEX_BITS == 0) begin
                read_data <= sectors[read_address[INDEX_BITS-1:0]];
                read_epoch <= tags[read_address[INDEX_BITS-1:0]];
            end else begin
                read_data <= content(read_address);
                read_epoch <= 0;
            end
        end
        if (!begun) begin
            begun <= 1;
            if ($value$plusargs("hbm_initial=%s", prefix)) $readmemh($sformatf("%s%0d.hex", prefix, id), sectors);
        end
        load_before <= load;
        dump_before <= dump;
        if (load && !load_before) begin
            if (!$value$plusargs("hbm_load=%s", prefix)) $fatal(1, "+hbm_load=PREFIX is missing");
            $readmemh($sformatf("%s%0d.hex", prefix, id), sectors);
        end
        if (dump && !dump_before) begin
            if (!$value$plusargs("hbm_dump=%s", prefix)) $fatal(1, "+hbm_dump=PREFIX is missing");
            if (!$value$plusargs("hbm_dump_sectors=%d", dumped)) dumped = SECTORS;
            $writememh($sformatf("%s%0d.hex", prefix, id), sectors, 0, dumped - 1);
        end
    end
endmodule
