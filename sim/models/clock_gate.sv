// Integrated clock gate: a latch transparent while the clock is low, and an AND. Simulation model of the library cell.
module clock_gate (
    input  logic clk,
    input  logic enable,
    output logic gated
);
    logic held;
    always_latch if (!clk) held = enable;
    assign gated = clk & held;
endmodule
