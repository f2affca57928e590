// Writes down what happens, for a timeline: with +timeline=<prefix> a record of 16 bytes for each source that is valid in a cycle, to file
// "<prefix><id>.<PART>", which is made with the first. `sim/models/recorder.cpp` writes, `sim/simulator/recording.py` reads it.
module recorder #(
    parameter int    SOURCES = 1,
    parameter string PART = "gpu"
) (
    input logic                  clk,
    input int                    id,
    input logic [SOURCES-1:0]    valid,
    input logic [64*SOURCES-1:0] payload
);
    import "DPI-C" function chandle recorder_open(input string name);
    import "DPI-C" function void recorder_put(
        input chandle file, input int cycle, input int source, input longint payload
    );
    import "DPI-C" function void recorder_close(input chandle file);

    string  prefix;
    bit     wanted, opened = 0;
    chandle file;
    int     cycle = 0;

    initial wanted = $value$plusargs("timeline=%s", prefix) != 0;

    always @(posedge clk)
        if (wanted) begin
            cycle <= cycle + 1;
            if (valid != 0) begin
                if (!opened) file = recorder_open($sformatf("%s%0d.%s", prefix, id, PART));
                opened = 1;
                for (int n = 0; n < SOURCES; n++)
                    if (valid[n]) recorder_put(file, cycle, n, payload[64 * n +: 64]);
            end
        end

    final if (opened) recorder_close(file);
endmodule
