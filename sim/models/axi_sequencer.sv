// Host of a ring simulation: runs a program of AXI4-Lite accesses on the GPUs, so that no Python is woken per access.
//
// The program is the file +program=<file>, one 64-bit command a line: 63:60 operation, 55:50 GPU, 47:32 address, 31:0 data.
//   0 end    1 write    2 read (appends "GPU address data" to the file +answers=<file>)
//   3 poll until (value & data) is not 0    4 write word `address` of the GPU's GEMM engine
//   5 poll until (value & data) is 0
// A rising `go` starts at command `start`; `idle` is high when its end is reached. `refused` stays high once an access was
// not answered with OKAY. With `stall` there are random gaps between accesses (probability / 256).
module axi_sequencer #(
    parameter COMMANDS = 65536
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        go,
    input  logic [15:0] start,
    input  logic [7:0]  stall,
    output logic        idle,
    output logic        refused,
    output logic [5:0]  select,
    output logic        gemm_write,
    output logic [4:0]  gemm_index,
    output logic [31:0] data,
    output logic [15:0] axi_awaddr,
    output logic        axi_awvalid,
    input  logic        axi_awready,
    output logic        axi_wvalid,
    input  logic        axi_wready,
    input  logic [1:0]  axi_bresp,
    input  logic        axi_bvalid,
    output logic        axi_bready,
    output logic [15:0] axi_araddr,
    output logic        axi_arvalid,
    input  logic        axi_arready,
    input  logic [31:0] axi_rdata,
    input  logic [1:0]  axi_rresp,
    input  logic        axi_rvalid,
    output logic        axi_rready
);
    typedef enum logic [2:0] {IDLE, FETCH, WRITE, ANSWER, READ, DATA, GEMM} state_t;
    state_t state = IDLE;
    logic [63:0] program_memory[COMMANDS];
    logic [63:0] command;
    logic [15:0] counter;
    logic [31:0] noise = 32'h2545f491;
    logic was_going = 0;
    string name;
    int answers = 0;

    initial begin
        if ($value$plusargs("program=%s", name)) $readmemh(name, program_memory);
        if ($value$plusargs("answers=%s", name)) answers = $fopen(name, "w");
    end

    assign idle = state == IDLE && !go;
    assign command = program_memory[counter];
    assign axi_bready = state == ANSWER;
    assign axi_rready = state == DATA;
    assign gemm_write = state == GEMM;

    always_ff @(posedge clk) begin
        noise <= {noise[30:0], noise[31] ^ noise[21] ^ noise[1] ^ noise[0]};
        was_going <= go;
        case (state)
            IDLE:
            if (go && !was_going) begin
                counter <= start;
                state   <= FETCH;
            end
            FETCH:
            if (noise[7:0] >= stall) begin
                select     <= command[55:50];
                axi_awaddr <= command[47:32];
                axi_araddr <= command[47:32];
                gemm_index <= command[36:32];
                data       <= command[31:0];
                case (command[63:60])
                    4'd1: begin
                        axi_awvalid <= 1;
                        axi_wvalid  <= 1;
                        state       <= WRITE;
                    end
                    4'd2, 4'd3, 4'd5: begin
                        axi_arvalid <= 1;
                        state       <= READ;
                    end
                    4'd4:    state <= GEMM;
                    default: state <= IDLE;
                endcase
            end
            WRITE: begin
                if (axi_awready) axi_awvalid <= 0;
                if (axi_wready) axi_wvalid <= 0;
                if ((axi_awready || !axi_awvalid) && (axi_wready || !axi_wvalid)) state <= ANSWER;
            end
            ANSWER:
            if (axi_bvalid) begin
                if (axi_bresp != 0) refused <= 1;
                counter <= counter + 1;
                state   <= FETCH;
            end
            READ:
            if (axi_arready) begin
                axi_arvalid <= 0;
                state       <= DATA;
            end
            DATA:
            if (axi_rvalid) begin
                if (axi_rresp != 0) refused <= 1;
                if (command[63:60] == 4'd2) begin
                    $fdisplay(answers, "%0d %0d %0d", select, axi_araddr, axi_rdata);
                    counter <= counter + 1;
                end else if (((axi_rdata & command[31:0]) != 0) == (command[63:60] == 4'd3)) counter <= counter + 1;
                state <= FETCH;
            end
            default: begin
                counter <= counter + 1;
                state   <= FETCH;
            end
        endcase
        if (rst) begin
            state       <= IDLE;
            axi_awvalid <= 0;
            axi_wvalid  <= 0;
            axi_arvalid <= 0;
            refused     <= 0;
        end
    end

    final if (answers != 0) $fclose(answers);
endmodule
