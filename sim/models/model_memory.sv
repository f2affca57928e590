// Memory of a simulation model: one write port, two read ports with the data in the same cycle, all zero at first. A loop
// clears it, because thousands of initial values in a netlist take a compiler minutes.
module model_memory #(
    parameter WIDTH = 8,
    parameter DEPTH = 1024
) (
    input  logic                     clk,
    input  logic                     write,
    input  logic [$clog2(DEPTH)-1:0] write_address,
    input  logic [WIDTH-1:0]         write_data,
    input  logic [$clog2(DEPTH)-1:0] read_address_0, read_address_1,
    output logic [WIDTH-1:0]         read_data_0, read_data_1
);
    logic [WIDTH-1:0] memory[DEPTH];

    initial for (int n = 0; n < DEPTH; n++) memory[n] = '0;
    always_ff @(posedge clk) if (write) memory[write_address] <= write_data;
    assign read_data_0 = memory[read_address_0];
    assign read_data_1 = memory[read_address_1];
endmodule
