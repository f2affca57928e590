// Data of a DRAM channel without its near-bank units: see tb/drivers/dram_stub.py. Not synthesizable.
//
// `write` and `add` take effect when their data is on the bus, WL cycles after the command; the data of `read` is given
// CL cycles after it. A read sees what was written up to the cycle before its data comes. `add` adds 32-bit words.
module dram_stub #(
    parameter CL = 14,
    parameter WL = 2,
    parameter ROWS = 16
) (
    input  logic         clk,
    input  logic         activate,
    input  logic [3:0]   activate_bank,
    input  logic [14:0]  activate_row,
    input  logic         read, write, add,
    input  logic [3:0]   bank,
    input  logic [5:0]   column,
    input  logic [31:0]  mask,
    input  logic [255:0] data,
    input  logic         fault,
    output logic         read_valid,
    output logic [255:0] read_data
);
    localparam INDEX_BITS = $clog2(ROWS) + 10;
    typedef logic [INDEX_BITS-1:0] index_t;
    logic [14:0]  rows[16];
    logic [255:0] sectors[ROWS * 1024];
    logic [CL-1:0] reading;
    logic [WL-1:0] writing, adding;
    index_t index, read_index[CL], write_index[WL];

    assign index = index_t'({rows[bank], bank, column});
    assign read_valid = reading[CL-1];

    always @(posedge clk) begin
        if (writing[WL-1] | adding[WL-1])
            for (int b = 0; b < 32; b += 4) begin
                logic [31:0] word;
                word = data[8 * b +: 32];
                if (adding[WL-1]) word += sectors[write_index[WL-1]][8 * b +: 32];
                for (int i = 0; i < 4; i++)
                    if (mask[b + i] | fault) sectors[write_index[WL-1]][8 * (b + i) +: 8] = word[8 * i +: 8];
            end
        if (reading[CL-2]) read_data <= sectors[read_index[CL-2]];
        if (activate) rows[activate_bank] <= activate_row;
        reading <= CL'({reading, read});
        writing <= WL'({writing, write});
        adding <= WL'({adding, add});
        read_index[0] <= index;
        write_index[0] <= index;
        for (int n = 1; n < CL; n++) read_index[n] <= read_index[n - 1];
        for (int n = 1; n < WL; n++) write_index[n] <= write_index[n - 1];
    end
endmodule
