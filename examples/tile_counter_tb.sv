// SPDX-License-Identifier: Apache-2.0
// Stores every sector of every tile in two parts, shuffled, and expects one event for each tile, after its last store;
// then one store too many, which must be refused. Ends with "PASS", or with $fatal.
module tile_counter_tb;

  localparam int STORES = 2 * 16 * 8;

  logic clk = 0, rst = 1, store = 0;
  logic ready, complete, refused;
  logic [11:0] address;
  logic [ 5:0] bytes;
  logic [ 3:0] tile;

  tile_counter dut (.*);
  always #5 clk = !clk;

  int order[STORES];
  int missing[16];
  int events = 0, faults = 0;

  // Everything is driven and looked at between the edges that the design sees.
  always @(negedge clk)
    if (!rst) begin
      if (complete) begin
        if (missing[tile] != 0) $fatal(1, "tile %0d is said to be complete, %0d stores early", tile, missing[tile]);
        missing[tile] = -1;
        events = events + 1;
      end
      if (refused) faults = faults + 1;
    end

  task automatic send(input int number);
    // Sector number / 2: its first 12 bytes, or the other 20.
    @(negedge clk);
    store   = 1;
    address = 12'(number / 2 * 32 + number % 2 * 12);
    bytes   = number % 2 != 0 ? 6'd20 : 6'd12;
    #1;
    while (!ready) begin
      @(negedge clk);
      #1;
    end
    @(posedge clk);
    missing[number/16] = missing[number/16] - 1;
    @(negedge clk);
    store = 0;
  endtask

  initial begin
    int swap, other;
    for (int i = 0; i < 16; i = i + 1) missing[i] = STORES / 16;
    for (int i = 0; i < STORES; i = i + 1) order[i] = i;
    for (int i = STORES - 1; i > 0; i = i - 1) begin
      other = int'($urandom_range(i));
      swap = order[i];
      order[i] = order[other];
      order[other] = swap;
    end
    repeat (4) @(negedge clk);
    rst = 0;
    for (int i = 0; i < STORES; i = i + 1) send(order[i]);
    repeat (100) @(negedge clk);
    if (events != 16) $fatal(1, "%0d tiles are complete, not 16", events);
    if (faults != 0) $fatal(1, "%0d stores were refused", faults);
    send(0);
    repeat (100) @(negedge clk);
    if (events != 16 || faults != 1) $fatal(1, "a store too many: %0d events, %0d faults", events, faults);
    $display("PASS: %0d tiles, each with one event", events);
    $finish;
  end

  initial begin
    repeat (10000) @(posedge clk);
    $fatal(1, "no end after 10000 cycles: %0d events", events);
  end

endmodule
