// Plays a request trace: the records of the file +<NAME>=FILE in order, each offered from its cycle on until it is taken
// (`cycle` counts from 0; nothing is offered before cycle 1). Without the plusarg there is nothing to play.
//
// A record has 16 bytes, least significant first: cycle (64 bits), sector address (25), unused (37), access (2).
module trace_player #(
    parameter string NAME = "trace"
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [63:0]  cycle,
    input  logic         ready,
    output logic         valid,
    output logic [26:0]  request,
    output logic         finished
);
    import "DPI-C" function chandle trace_open(input string name);
    import "DPI-C" function int trace_next(input chandle reader, output bit [127:0] record);

    chandle reader;
    string name;
    bit [127:0] next;
    logic more = 0;

    initial begin
        valid = 0;
        if ($value$plusargs({NAME, "=%s"}, name)) begin
            reader = trace_open(name);
            if (reader == null) $fatal(1, "cannot open %s", name);
            more = trace_next(reader, next) != 0;
        end
    end

    assign finished = !more && !valid;

    always @(posedge clk)
        if (!rst && (!valid || ready)) begin
            valid <= more && next[63:0] <= cycle + 1;
            if (more && next[63:0] <= cycle + 1) begin
                request <= {next[88:64], next[127:126]};
                more <= trace_next(reader, next) != 0;
            end
        end
endmodule
