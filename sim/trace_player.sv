// Plays a request trace: the records of the file +<NAME>=FILE in order, each offered from its cycle on until it is taken
// (`cycle` counts from 0; nothing is offered before cycle 1).
//
// A record has 128 bits, most significant byte first: access (2), unused (37), sector address (25), cycle (64). Without
// the plusarg there is nothing to play. The file is read in pieces of CHUNK records.
module trace_player #(
    parameter string NAME = "trace",
    parameter CHUNK = 4096
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [63:0]  cycle,
    input  logic         ready,
    output logic         valid,
    output logic [26:0]  request,
    output logic         finished
);
    logic [127:0] records[CHUNK];
    logic [127:0] next;
    string name;
    int file, filled = 0, position = 0;
    logic ended = 1;

    initial begin
        valid = 0;
        if ($value$plusargs({NAME, "=%s"}, name)) begin
            file = $fopen(name, "rb");
            if (file == 0) $fatal(1, "cannot open %s", name);
            ended = 0;
        end
    end

    assign finished = ended && !valid;

    always @(posedge clk)
        if (!rst && (!valid || ready)) begin
            valid <= 0;
            if (position == filled && !ended) begin
                filled = $fread(records, file) / 16;
                position = 0;
                ended <= filled == 0;
            end
            if (position != filled) begin
                next = records[position];
                if (next[63:0] <= cycle + 1) begin
                    valid <= 1;
                    request <= {next[88:64], next[127:126]};
                    position = position + 1;
                end
            end
        end
endmodule
