// One DRAM channel with a trace for each of its two streams. At the end it prints "figures <hex>", the figures of
// DramChannel.
//
// +compute=FILE and +communication=FILE are the traces (see trace_player.sv), +control=HEX is the arbiter's programming.
// The clock is the caller's (free_running.cpp). +limit=N ends a run after N cycles, whatever is left to do.
module dram_trace #(
    parameter CONTROL_BITS = 1,
    parameter FIGURE_BITS = 1
) (
    input logic clk
);
    logic rst = 1;
    logic [63:0] cycle = 0, limit;
    logic [CONTROL_BITS-1:0] control;
    logic [FIGURE_BITS-1:0] figures;
    logic compute_valid, compute_ready, compute_finished;
    logic communication_valid, communication_ready, communication_finished;
    logic [26:0] compute_request, communication_request;
    logic idle;
    logic [3:0] quiet = 0;

    initial begin
        if (!$value$plusargs("control=%h", control)) $fatal(1, "+control=HEX is missing");
        if (!$value$plusargs("limit=%d", limit)) limit = '1;
    end

    trace_player #(.NAME("compute")) compute (
        .clk(clk), .rst(rst), .cycle(cycle), .ready(compute_ready), .valid(compute_valid), .request(compute_request),
        .finished(compute_finished)
    );
    trace_player #(.NAME("communication")) communication (
        .clk(clk), .rst(rst), .cycle(cycle), .ready(communication_ready), .valid(communication_valid),
        .request(communication_request), .finished(communication_finished)
    );
    dram_channel channel (
        .clk(clk), .rst(rst), .control(control), .kernel_active(!compute_finished), .measured(!quiet[3] && !rst),
        .compute__valid(compute_valid), .compute__ready(compute_ready), .compute__payload(compute_request),
        .communication__valid(communication_valid), .communication__ready(communication_ready),
        .communication__payload(communication_request), .idle(idle), .figures(figures)
    );

    // The figures are complete a few cycles after the channel has become idle.
    always @(posedge clk) begin
        rst <= 0;
        if (!rst) cycle <= cycle + 1;
        quiet <= idle && compute_finished && communication_finished && !rst ? quiet + 1 : 0;
        if (&quiet || cycle == limit) begin
            $display("figures %h", figures);
            $finish;
        end
    end
endmodule
