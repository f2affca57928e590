// A ring of exported nodes for a four-state simulator: DRAM with the exported near-bank unit, wires for links, stimulus
// and expected sums from tables. Nothing here has a value before it gets one. From the end of reset on, no X may reach
// an output of a node: what says that something happens is looked at in every cycle, payloads while they are valid.
//
// Files in +tables=<folder>: registers.hex ({rank, address, data} a line), stores<rank>.hex (requests of `compute`),
// expected.hex ({rank, sector, sum} a line). Widths are those of one channel, two link ports, preset "tiny".
`timescale 1ns/1ps

// One channel's DRAM array: SECTORS sectors of garbage (X), epoch tags too: the node sweeps what needs it. Write-first; data of a
// read comes a cycle later.
module bench_dram #(parameter SECTORS = 4096) (
    input  wire         clk, rst,
    input  wire [22:0]  row,
    input  wire [25:0]  column,
    input  wire [287:0] write_data,
    output wire [256:0] read_data
);
    localparam INDEX = $clog2(SECTORS);
    reg [255:0] sectors [0:SECTORS-1];
    reg [7:0]   tags [0:SECTORS-1];
    reg [14:0]  open_rows [0:15];
    reg [263:0] array_data;
    wire [23:0]  wanted [0:3];
    wire [320:0] written [0:3];
    wire [256:0] returned [0:3];
    integer n, b;
    genvar group;


    generate for (group = 0; group < 4; group = group + 1) begin : unit
        t3_near_bank near_bank (
            .clk(clk), .rst(rst),
            .column({column[25:1], column[0] && column[4:3] == group}),
            .row(open_rows[column[6:3]]),
            .write_data(write_data), .array_data(array_data),
            .read_data(returned[group]), .array_read(wanted[group]), .array_write(written[group])
        );
    end endgenerate
    assign read_data = {array_data[255:0], returned[0][0] | returned[1][0] | returned[2][0] | returned[3][0]};

    task put(input [24:0] address, input [31:0] mask, input [255:0] data, input mark, input [7:0] epoch);
        begin
            for (b = 0; b < 32; b = b + 1) if (mask[b]) sectors[address[INDEX-1:0]][8 * b +: 8] = data[8 * b +: 8];
            if (mark) tags[address[INDEX-1:0]] = epoch;
        end
    endtask

    // Writes of all units before their reads, of which there is one a cycle at most.
    always @(posedge clk) begin
        for (n = 0; n < 4; n = n + 1) if (written[n][0])
            put({written[n][23:1], n[1:0]}, written[n][55:24], written[n][311:56], written[n][312], written[n][320:313]);
        for (n = 0; n < 4; n = n + 1) if (wanted[n][0])
            array_data <= {tags[{wanted[n][INDEX-2:1], n[1:0]}], sectors[{wanted[n][INDEX-2:1], n[1:0]}]};
        if (row[0] && row[2:1] == 0) open_rows[row[7:4]] <= row[22:8];
    end
endmodule

module four_state_ring #(
    parameter GPUS = 2, FLIT = 2, MESSAGE = 2, REGISTERS = 1, STORES = 1, EXPECTED = 1, LIMIT = 100000,
    parameter [15:0] STATUS = 0, CONTROL = 0,
    parameter [31:0] ARMED = 0, ARM = 0
);
    reg clk = 0, rst;
    reg checking = 0, started = 0;
    integer errors = 0, cycles = 0, n, rank;
    reg [1023:0] tables;
    reg [55:0]  registers [0:REGISTERS-1];
    reg [295:0] expected [0:EXPECTED-1];
    wire [FLIT-1:0] tx [0:2*GPUS-1];
    wire         tx_valid [0:2*GPUS-1];
    wire [MESSAGE-1:0] rx_messages [0:2*GPUS-1];
    // The host's bus, to one node at a time.
    reg [15:0] awaddr, araddr;
    reg [31:0] wdata;
    reg [GPUS-1:0] awvalid, wvalid, arvalid;
    wire [GPUS-1:0] awready, wready, bvalid, arready, rvalid, done;
    wire [31:0] rdata [0:GPUS-1];
    wire [GPUS-1:0] irq, sent;

    always #5 clk = !clk;

    genvar g;
    generate for (g = 0; g < GPUS; g = g + 1) begin : gpu
        localparam NEXT = (g + 1) % GPUS, LAST = (g + GPUS - 1) % GPUS;
        wire [22:0] row;
        wire [25:0] column;
        wire [287:0] write_data;
        wire [256:0] read_data;
        reg [361:0] stores [0:STORES-1];
        reg [361:0] payload;
        reg valid;
        integer next;
        wire ready, response_valid, launch_valid;
        wire [264:0] response;
        wire [22:0] launch;
        wire [1:0] bresp, rresp;
        wire [15:0] range_done;
        wire [1:0] link_ready;
        reg [FLIT-1:0] flit_0, flit_1;
        reg flit_valid_0, flit_valid_1;
        reg [MESSAGE-1:0] messages_0, messages_1;

        t3_node node (
            .clk(clk), .rst(rst),
            .axi_awaddr(awaddr), .axi_awprot(3'b0), .axi_awvalid(awvalid[g]), .axi_awready(awready[g]),
            .axi_wdata(wdata), .axi_wstrb(4'hf), .axi_wvalid(wvalid[g]), .axi_wready(wready[g]),
            .axi_bresp(bresp), .axi_bvalid(bvalid[g]), .axi_bready(1'b1),
            .axi_araddr(araddr), .axi_arprot(3'b0), .axi_arvalid(arvalid[g]), .axi_arready(arready[g]),
            .axi_rdata(rdata[g]), .axi_rresp(rresp), .axi_rvalid(rvalid[g]), .axi_rready(1'b1),
            .irq(irq[g]), .kernel_active(valid),
            .compute__0__payload(payload), .compute__0__valid(valid), .compute__0__ready(ready),
            .responses__0__payload(response), .responses__0__valid(response_valid), .responses__0__ready(1'b1),
            .link__0__tx__payload(tx[2*g]), .link__0__tx__valid(tx_valid[2*g]), .link__0__tx__ready(1'b1),
            .link__0__tx_messages(messages_0),
            .link__0__rx__payload(flit_0), .link__0__rx__valid(flit_valid_0), .link__0__rx__ready(link_ready[0]),
            .link__0__rx_messages(rx_messages[2*g]),
            .link__1__tx__payload(tx[2*g+1]), .link__1__tx__valid(tx_valid[2*g+1]), .link__1__tx__ready(1'b1),
            .link__1__tx_messages(messages_1),
            .link__1__rx__payload(flit_1), .link__1__rx__valid(flit_valid_1), .link__1__rx__ready(link_ready[1]),
            .link__1__rx_messages(rx_messages[2*g+1]),
            .dram__0__row(row), .dram__0__column(column), .dram__0__write_data(write_data),
            .dram__0__read_data(read_data),
            .launches__payload(launch), .launches__valid(launch_valid), .launches__ready(1'b1),
            .range_done(range_done), .done(done[g])
        );
        bench_dram dram (
            .clk(clk), .rst(rst), .row(row), .column(column), .write_data(write_data), .read_data(read_data)
        );
        assign sent[g] = next == STORES && !valid;

        // Wires one cycle long: port 0 leads to port 1 of the next node.
        always @(posedge clk) begin
            flit_valid_0 <= !rst && tx_valid[2*NEXT+1];
            flit_valid_1 <= !rst && tx_valid[2*LAST];
            flit_0 <= tx[2*NEXT+1];
            flit_1 <= tx[2*LAST];
            messages_0 <= rst ? 0 : rx_messages[2*NEXT+1];
            messages_1 <= rst ? 0 : rx_messages[2*LAST];
            if (rst) begin
                valid <= 0;
                next <= 0;
            end else if (started && (!valid || ready)) begin
                valid <= next < STORES;
                payload <= next < STORES ? stores[next] : 362'bx;
                if (next < STORES) next <= next + 1;
            end
        end

        // Outputs, in the middle of every cycle.
        always @(negedge clk) if (checking) begin
            if (^{awready[g], wready[g], bvalid[g], arready[g], rvalid[g], irq[g], done[g], range_done, ready,
                  response_valid, launch_valid, tx_valid[2*g], tx_valid[2*g+1], link_ready, row[0], column[0],
                  rx_messages[2*g][0], rx_messages[2*g+1][0], read_data[0]} === 1'bx) report("control", g);
            if (bvalid[g] && ^bresp === 1'bx) report("bresp", g);
            if (rvalid[g] && ^{rresp, rdata[g]} === 1'bx) report("rdata", g);
            if (launch_valid && ^launch === 1'bx) report("launches", g);
            if (response_valid && ^response === 1'bx) report("responses", g);
            if (tx_valid[2*g] && ^tx[2*g] === 1'bx) report("tx of port 0", g);
            if (tx_valid[2*g+1] && ^tx[2*g+1] === 1'bx) report("tx of port 1", g);
            if (rx_messages[2*g][0] && ^rx_messages[2*g] === 1'bx) report("rx_messages of port 0", g);
            if (rx_messages[2*g+1][0] && ^rx_messages[2*g+1] === 1'bx) report("rx_messages of port 1", g);
            if (row[0] && ^row[2:1] === 1'bx) report("row command", g);
            if (row[0] && row[2:1] == 0 && ^row === 1'bx) report("activated row", g);
            if (row[0] && row[2:1] == 1 && ^row[7:3] === 1'bx) report("precharged bank", g);
            if (column[0] && ^column[12:1] === 1'bx) report("column command", g);
            if (column[0] && column[2:1] == 2 && ^column === 1'bx) report("update", g);
        end
    end endgenerate

    task report(input [8*24-1:0] what, input integer where);
        begin
            errors = errors + 1;
            if (errors <= 20) $display("ERROR: X on %0s of GPU %0d in cycle %0d", what, where, cycles);
        end
    endtask

    task write(input integer to, input [15:0] address, input [31:0] data);
        begin
            awaddr <= address;
            wdata <= data;
            awvalid[to] <= 1;
            wvalid[to] <= 1;
            @(posedge clk);
            while (!bvalid[to]) begin
                if (awready[to]) awvalid[to] <= 0;
                if (wready[to]) wvalid[to] <= 0;
                @(posedge clk);
            end
            awvalid[to] <= 0;
            wvalid[to] <= 0;
            @(posedge clk);
        end
    endtask

    reg [31:0] answer;
    task read(input integer from, input [15:0] address);
        begin
            araddr <= address;
            arvalid[from] <= 1;
            @(posedge clk);
            while (!rvalid[from]) begin
                if (arready[from]) arvalid[from] <= 0;
                @(posedge clk);
            end
            arvalid[from] <= 0;
            answer = rdata[from];
            @(posedge clk);
        end
    endtask

    // Reset ends after a few edges; the host programs all nodes, arms them, and the GEMMs begin.
    always @(posedge clk) cycles <= cycles + 1;
    initial begin
        if (!$value$plusargs("tables=%s", tables)) $fatal(1, "+tables=FOLDER is missing");
        $readmemh({tables, "/registers.hex"}, registers);
        $readmemh({tables, "/expected.hex"}, expected);
        rst <= 1;
        awvalid <= 0;
        wvalid <= 0;
        arvalid <= 0;
        repeat (4) @(posedge clk);
        rst <= 0;
        checking <= 1;
        for (n = 0; n < REGISTERS; n = n + 1) write(registers[n][55:48], registers[n][47:32], registers[n][31:0]);
        for (rank = 0; rank < GPUS; rank = rank + 1) write(rank, CONTROL, ARM);
        for (rank = 0; rank < GPUS; rank = rank + 1) begin
            answer = 0;
            while (!(answer & ARMED)) read(rank, STATUS);
        end
        started <= 1;
        while (!(&done && &sent)) @(posedge clk);
        repeat (300) @(posedge clk);
        if (irq) begin
            errors = errors + 1;
            $display("ERROR: irq %b", irq);
        end
        for (n = 0; n < EXPECTED; n = n + 1) compare(expected[n][295:288], expected[n][287:256], expected[n][255:0]);
        finish();
    end

    always @(posedge clk) if (cycles == LIMIT) begin
        errors = errors + 1;
        $display("ERROR: not done after %0d cycles: done %b, sent %b", cycles, done, sent);
        finish();
    end

    task finish;
        begin
            $display("%0s: %0d errors, %0d sectors compared, %0d cycles", errors ? "FAIL" : "PASS", errors, EXPECTED, cycles);
            $finish;
        end
    endtask

    // What does not depend on hierarchy by a variable index: each GPU compares its own sectors.
    reg [7:0] whose;
    reg [31:0] sector;
    reg [255:0] sum;
    event compared;
    task compare(input [7:0] of, input [31:0] address, input [255:0] data);
        begin
            whose = of;
            sector = address;
            sum = data;
            -> compared;
            #1;
        end
    endtask
    generate for (g = 0; g < GPUS; g = g + 1) begin : result
        reg [1023:0] file;
        initial begin
            #1 $sformat(file, "%0s/stores%0d.hex", tables, g);
            $readmemh(file, gpu[g].stores);
        end
        always @(compared) if (whose == g && gpu[g].dram.sectors[sector] !== sum) begin
            errors = errors + 1;
            if (errors <= 20)
                $display("ERROR: sector %0d of GPU %0d is %h, not %h", sector, g, gpu[g].dram.sectors[sector], sum);
        end
    end endgenerate
endmodule
