// The column commands that write to a channel, in the order of their issue: for each a line "sector command alu first mask
// data" in hexadecimal in the file "<prefix><id>.hex", prefix from +command_log=<prefix>. Without it nothing is written.
// The data comes WL cycles after its command. `sector` is the channel's own address, `command` and `alu` are numbers of
// ColumnCommand and AluOperation, `first` says that a first touch of the epoch acts as a store.
module command_log #(
    parameter WL = 4
) (
    input logic         clk,
    input int           id,
    input logic         activate,
    input logic [3:0]   activated_bank,
    input logic [14:0]  activated_row,
    input logic         column,
    input logic [1:0]   command,
    input logic [3:0]   bank,
    input logic [5:0]   place,
    input logic [1:0]   alu,
    input logic         first,
    input logic [31:0]  mask,
    input logic [255:0] data
);
    logic [14:0] rows[16];
    logic [30:0] waiting[WL + 1];
    int file = 0;
    logic begun = 0;
    string prefix;

    always @(posedge clk) begin
        if (!begun) begin
            begun <= 1;
            if ($value$plusargs("command_log=%s", prefix)) file = $fopen($sformatf("%s%0d.hex", prefix, id), "w");
        end
        if (file != 0) begin
            if (activate) rows[activated_bank] <= activated_row;
            for (int n = WL; n > 0; n--) waiting[n] = waiting[n - 1];
            waiting[0] = {column && command != 0, command, alu, first, rows[bank], bank[3:2], place, bank[1:0]};
            if (waiting[WL][30])
                $fdisplay(file, "%0h %0h %0h %0h %h %h", waiting[WL][24:0], waiting[WL][29:28], waiting[WL][27:26],
                          waiting[WL][25], mask, data);
        end
    end

    final if (file != 0) $fclose(file);
endmodule
