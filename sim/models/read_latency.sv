// How long reads take, from the cycle in which a request is taken to that in which its data is there. From the last
// `restart` on, while `enable`, reads that are answered are counted by their cycles; when `enable` falls, a line
// "<cycles> <reads>" for each count that is not 0 goes to "<prefix><id>.txt", prefix from +read_latencies=<prefix>. What
// took LIMIT - 1 cycles or more is one count. Without +read_latencies nothing is counted.
module read_latency #(
    parameter PORTS = 1,
    parameter LIMIT = 65536
) (
    input logic               clk,
    input int                 id,
    input logic               restart,
    input logic               enable,
    input logic [PORTS-1:0]   asked,
    input logic [8*PORTS-1:0] asked_tag,
    input logic [PORTS-1:0]   answered,
    input logic [8*PORTS-1:0] answered_tag
);
    int now = 0, took = 0, file = 0;
    int since[256 * PORTS];
    int counts[LIMIT];
    logic wanted = 0, enabled_before = 0;
    string prefix;

    initial begin
        for (int n = 0; n < LIMIT; n++) counts[n] = 0;
        wanted = $value$plusargs("read_latencies=%s", prefix) != 0;
    end

    always @(posedge clk) if (wanted) begin
        now = now + 1;
        enabled_before <= enable & ~restart;
        if (restart) for (int n = 0; n < LIMIT; n++) counts[n] = 0;
        for (int p = 0; p < PORTS; p++) begin
            if (answered[p] && enable && !restart) begin
                took = now - since[256 * p + answered_tag[8 * p +: 8]];
                if (took >= LIMIT) took = LIMIT - 1;
                counts[took] = counts[took] + 1;
            end
            if (asked[p]) since[256 * p + asked_tag[8 * p +: 8]] = now;
        end
        if (enabled_before && !enable && !restart) begin
            file = $fopen($sformatf("%s%0d.txt", prefix, id), "w");
            for (int n = 0; n < LIMIT; n++) if (counts[n] != 0) $fdisplay(file, "%0d %0d", n, counts[n]);
            $fclose(file);
        end
    end
endmodule
