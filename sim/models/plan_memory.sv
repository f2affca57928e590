// A plan of a workgroup engine: LINES lines of WIDTH bits, read in the same cycle. Loaded from the file
// +<kind>=<prefix>: "<prefix><id>.hex" with PER_GPU (at the first clock edge, when `id` is known), else "<prefix>.hex".
module plan_memory #(
    parameter WIDTH = 32,
    parameter LINES = 1024,
    parameter PER_GPU = 0,
    parameter KIND = "plan=%s"
) (
    input  logic                     clk,
    input  int                       id,
    input  logic [$clog2(LINES)-1:0] address,
    output logic [WIDTH-1:0]         data
);
    logic [WIDTH-1:0] memory[LINES];
    logic loaded = 0;
    string prefix;

    always @(posedge clk)
        if (!loaded) begin
            loaded <= 1;
            if ($value$plusargs(KIND, prefix))
                $readmemh(PER_GPU != 0 ? $sformatf("%s%0d.hex", prefix, id) : {prefix, ".hex"}, memory);
        end

    assign data = memory[address];
endmodule
