// The partial output of one GPU's GEMM, loaded from the file +source=<prefix><id>.hex (one sector a line) at the first
// clock edge, when `id` is known.
module source_array #(
    parameter SECTORS = 1024
) (
    input  logic                       clk,
    input  int                         id,
    input  logic                       enable,
    input  logic [$clog2(SECTORS)-1:0] address,
    output logic [255:0]               data
);
    logic [255:0] memory[SECTORS];
    logic loaded = 0;
    string prefix;

    always @(posedge clk)
        if (!loaded) begin
            loaded <= 1;
            if ($value$plusargs("source=%s", prefix)) $readmemh($sformatf("%s%0d.hex", prefix, id), memory);
        end

    always_ff @(posedge clk) if (enable) data <= memory[address];
endmodule
