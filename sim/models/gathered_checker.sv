// Compares what a GPU reads of an array that is gathered with what its owners wrote: at every read that came back, with
// its address. The array is the file "<prefix><id>.hex" of +gathered=<prefix>, one hexadecimal sector a line, loaded at the
// first clock edge, when `id` is known; it begins at sector
// +gathered_first=<number> and has +gathered_sectors=<number>, +gathered_pitch=<number> to a row, in whose last one
// +gathered_last=<bytes> belong to it. Without +gathered nothing is compared.
module gathered_checker #(
    parameter SECTORS = 1024
) (
    input  logic         clk,
    input  int           id,
    input  logic         valid,
    input  logic [31:0]  address,
    input  logic [255:0] data,
    output logic [31:0]  reads,
    output logic [31:0]  wrong,
    output logic [31:0]  first_wrong
);
    logic [255:0] owners[SECTORS];
    logic [255:0] mask, last_mask;
    logic [31:0] place;
    int first = 0, sectors = 0, pitch = 1, last_bytes = 32;
    logic loaded = 0;
    string prefix;

    initial begin
        reads = 0;
        wrong = 0;
        first_wrong = 0;
        if ($value$plusargs("gathered=%s", prefix)) begin
            if (!$value$plusargs("gathered_first=%d", first)) $fatal(1, "+gathered_first is missing");
            if (!$value$plusargs("gathered_sectors=%d", sectors)) $fatal(1, "+gathered_sectors is missing");
            if (!$value$plusargs("gathered_pitch=%d", pitch)) $fatal(1, "+gathered_pitch is missing");
            if (!$value$plusargs("gathered_last=%d", last_bytes)) $fatal(1, "+gathered_last is missing");
        end
        for (int b = 0; b < 256; b++) last_mask[b] = b < 8 * last_bytes;
    end

    always @(posedge clk) begin
        if (!loaded) begin
            loaded <= 1;
            if (sectors != 0) $readmemh($sformatf("%s%0d.hex", prefix, id), owners);
        end
        if (valid && address >= first && address - first < sectors) begin
            place = address - first;
            mask = place % pitch == pitch - 1 ? last_mask : '1;
            reads <= reads + 1;
            if (((data ^ owners[place]) & mask) != 0) begin
                wrong <= wrong + 1;
                if (wrong == 0) first_wrong <= address;
            end
        end
    end
endmodule
