// SPDX-License-Identifier: Apache-2.0
// The Tracker in a SystemVerilog design of your own: sixteen tiles of 256 bytes, stored in any order, and an event for
// each that is complete. It programs what tile_events.py programs from Python; t3_tracker.sv and the structs of its
// ports, t3_pkg.sv, are written by `t3rtl verilog`.
module tile_counter
  import t3_pkg::*;
(
    input  logic        clk,
    input  logic        rst,       // synchronous, active high
    input  logic        store,     // a store, taken when `ready`
    output logic        ready,     // low after reset until range and tables are prepared, about as many cycles as blocks
    input  logic [11:0] address,   // of its first byte, 0 to 16 * 256 - 1
    input  logic [ 5:0] bytes,     // how many, in one sector of 32
    output logic        complete,  // for one cycle
    output logic [ 3:0] tile,      // which tile `complete` is about
    output logic        refused    // for one cycle: more bytes than a tile has
);

  // The words of a range entry, 17 to 0 (register map, "Range table").
  localparam logic [18*32-1:0] ENTRY = {
    32'h0000_0010,  // WF_TOTAL: 16
    32'h0000_0000,  // THRESHOLD_CORNER
    32'h0000_0000,  // THRESHOLD_BOTTOM
    32'h0000_0100,  // THRESHOLD_RIGHT
    32'h0000_0100,  // THRESHOLD_BODY: 256 bytes
    32'h0000_0008,  // WF_STRIDE: 8 sectors
    32'h0000_0008,  // PITCH: 8 sectors
    32'h0100_0100,  // ROW_BYTES: 256
    32'h0000_0001,  // ROWS: one in a tile
    32'h0110_0000,  // BLOCKS
    32'h0110_ffff,  // GROUPING
    32'h0001_000f,  // RAGGED
    32'h0010_0000,  // WORKGROUPS: base 0, count 16
    32'h0000_0000,  // LIMIT_HIGH
    32'h0000_0080,  // LIMIT_LOW: 16 tiles of 8 sectors
    32'h0000_0000,  // BASE_HIGH
    32'h0000_0000,  // BASE_LOW
    32'h0000_0c09   // CONTROL: valid, STORE, tracked, launch
  };

  // After reset, CONTROL last: a range is valid when all of it is written.
  logic [4:0] left;
  wire programmed = left == 0;
  always_ff @(posedge clk) begin
    if (rst) left <= 5'd18;
    else if (!programmed) left <= left - 5'd1;
  end

  range_write_t range_write;
  always_comb begin
    range_write = '0;
    range_write.valid = !programmed;
    range_write.word = left - 5'd1;
    range_write.data = programmed ? 32'd0 : ENTRY[32*(left-5'd1)+:32];
  end

  commit_t commit;
  always_comb begin
    commit = '0;
    commit.wg = address[11:8];
    commit.epoch = 1;
    commit.va = address[11:5];
    commit.bytes = bytes;
  end

  // No doorbell; sixteen counters have room, so that none is ever evicted or fetched.
  commit_t no_commit;
  spill_response_t no_response;
  assign no_commit   = '0;
  assign no_response = '0;

  logic commit_ready;
  launch_event_t launch;
  t3_tracker tracker (
      .clk,
      .rst,
      .ranges(range_write),
      .epoch(8'd1),
      .clear(1'b0),
      .cleared(),
      .commits__0__payload(commit),
      .commits__0__valid(store && programmed),
      .commits__0__ready(commit_ready),
      .doorbell__payload(no_commit),
      .doorbell__valid(1'b0),
      .doorbell__ready(),
      .blocks__payload(),
      .blocks__valid(),
      .blocks__ready(1'b1),
      .launches__payload(launch),
      .launches__valid(complete),
      .launches__ready(1'b1),
      .done(),
      .waiting(),
      .spill_requests__payload(),
      .spill_requests__valid(),
      .spill_requests__ready(1'b1),
      .spill_response(no_response),
      .faults__payload(),
      .faults__valid(refused),
      .faults__ready(1'b1),
      .events()
  );
  assign ready = commit_ready && programmed;
  assign tile  = launch.wg[3:0];

endmodule
