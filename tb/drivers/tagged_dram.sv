// A DRAM channel with near-bank units that know first touch and INT32 ADD: see tb/drivers/tagged_dram.py. Not synthesizable.
//
// WR and UPDATE take effect when their data is on the bus, WL cycles after the command; the data of RD is given CL cycles
// after it. Data starts as a hash of the address; tags, the epochs that last filled the sectors, start as +tag=<number>
// (default 0), as garbage does that happens to be the number of an epoch. A reset keeps both.
module tagged_dram #(
    parameter CL = 14,
    parameter WL = 2,
    parameter ROWS = 16,
    parameter EPOCH_BITS = 8
) (
    input  logic                  clk,
    input  logic                  activate,
    input  logic [3:0]            activate_bank,
    input  logic [14:0]           activate_row,
    input  logic                  read, write, add, first_touch,
    input  logic [EPOCH_BITS-1:0] epoch,
    input  logic [3:0]            bank,
    input  logic [5:0]            column,
    input  logic [31:0]           mask,
    input  logic [255:0]          data,
    output logic                  read_valid,
    output logic [255:0]          read_data
);
    localparam INDEX_BITS = $clog2(ROWS) + 10;
    typedef logic [INDEX_BITS-1:0] index_t;
    typedef struct packed {
        logic write, add, first_touch;
        logic [EPOCH_BITS-1:0] epoch;
        index_t index;
    } command_t;
    logic [14:0]           rows[16];
    logic [255:0]          sectors[ROWS * 1024];
    logic [EPOCH_BITS-1:0] tags[ROWS * 1024];
    logic [CL-1:0]         reading;
    index_t                index, read_index[CL];
    command_t              commands[WL], now;
    int                    tag;

    assign index = index_t'({rows[bank], bank[3:2], column, bank[1:0]});
    assign read_valid = reading[CL-1];
    assign now = commands[WL-1];

    initial begin
        if (!$value$plusargs("tag=%d", tag)) tag = 0;
        for (int n = 0; n < ROWS * 1024; n++) begin
            for (int w = 0; w < 8; w++) sectors[n][32 * w +: 32] = 32'(8 * n + w + 1) * 32'h9e3779b1;
            tags[n] = EPOCH_BITS'(tag);
        end
        for (int n = 0; n < WL; n++) commands[n] = 0;
        reading = 0;
    end

    always @(posedge clk) begin
        if (now.write | now.add) begin
            logic fills;
            fills = now.add & now.first_touch & tags[now.index] != now.epoch;
            for (int b = 0; b < 32; b += 4) begin
                logic [31:0] word, kept;
                kept = fills ? 0 : sectors[now.index][8 * b +: 32];
                word = data[8 * b +: 32] + (now.add ? kept : 0);
                for (int i = 0; i < 4; i++)
                    sectors[now.index][8 * (b + i) +: 8] = mask[b + i] ? word[8 * i +: 8] : kept[8 * i +: 8];
            end
            if (fills | (now.write & &mask)) tags[now.index] = now.epoch;
        end
        if (reading[CL-2]) read_data <= sectors[read_index[CL-2]];
        if (activate) rows[activate_bank] <= activate_row;
        reading <= CL'({reading, read});
        read_index[0] <= index;
        commands[0] <= '{write: write, add: add, first_touch: first_touch, epoch: epoch, index: index};
        for (int n = 1; n < CL; n++) read_index[n] <= read_index[n - 1];
        for (int n = 1; n < WL; n++) commands[n] <= commands[n - 1];
    end
endmodule
