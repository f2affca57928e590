// What the channels of one GPU do over time. From the last `restart` on, while kernels are `busy` and, with +sampled_to_done, the collective is
// `pending`, every +sample_window=<cycles> a line is appended to "<prefix><id>.txt", prefix from +samples=<prefix>: 16 counts of column commands
// by kind = {traffic_class, access} (access in the low bits), the sum over cycles and channels of the requests in the DRAM
// queues, the threshold in force, and the cycles of the window (the last one may be short). Without +samples nothing is written.
module sampler #(
    parameter CHANNELS = 1
) (
    input logic                  clk,
    input int                    id,
    input logic                  restart,
    input logic                  busy,
    input logic                  pending,
    input logic [CHANNELS-1:0]   column,
    input logic [4*CHANNELS-1:0] kind,
    input logic [7*CHANNELS-1:0] occupancy,
    input logic [2:0]            threshold
);
    int window = 0, cycles = 0, file = 0;
    int counts[16];
    longint waiting = 0;
    logic enabled_before = 0;
    bit to_done;
    string prefix;
    wire enable = busy | (pending & to_done);

    initial to_done = $test$plusargs("sampled_to_done") != 0;

    task automatic put();
        for (int n = 0; n < 16; n++) begin
            $fwrite(file, "%0d ", counts[n]);
            counts[n] = 0;
        end
        $fdisplay(file, "%0d %0d %0d", waiting, threshold, cycles);
        waiting = 0;
        cycles = 0;
    endtask

    always @(posedge clk) begin
        enabled_before <= enable & ~restart;
        if (restart) begin
            if (file != 0) $fclose(file);
            file = 0;
            if ($value$plusargs("samples=%s", prefix) && $value$plusargs("sample_window=%d", window))
                file = $fopen($sformatf("%s%0d.txt", prefix, id), "w");
            for (int n = 0; n < 16; n++) counts[n] = 0;
            waiting = 0;
            cycles = 0;
        end else if (file != 0) begin
            if (enable) begin
                for (int c = 0; c < CHANNELS; c++) begin
                    if (column[c]) counts[kind[4 * c +: 4]] = counts[kind[4 * c +: 4]] + 1;
                    waiting = waiting + 64'(occupancy[7 * c +: 7]);
                end
                cycles = cycles + 1;
                if (cycles == window) put();
            end else if (enabled_before) begin
                if (cycles != 0) put();
                $fclose(file);
                file = 0;
            end
        end
    end

    final
        if (file != 0) begin
            if (cycles != 0) put();
            $fclose(file);
        end
endmodule
