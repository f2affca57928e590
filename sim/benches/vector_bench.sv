// Drives the near-bank ALU from a file, one operation a cycle: lines of "operand old new" (hex) from +operations=FILE,
// one line of result (hex) each to +results=FILE.
module vector_bench;
    logic clk = 0;
    logic rst = 1;
    always #1 clk = ~clk;

    logic valid = 0;
    logic [36:0] operand, next_operand;
    logic [255:0] old, next_old, arriving, next_arriving, result;
    logic result_valid;
    alu alu (
        .clk(clk), .rst(rst), .valid(valid), .operand(operand), .old(old), .arriving(arriving),
        .result_valid(result_valid), .result(result)
    );

    string operations_name, results_name;
    integer operations, results, idle;
    initial begin
        if (!$value$plusargs("operations=%s", operations_name)) $fatal(1, "+operations=FILE is missing");
        if (!$value$plusargs("results=%s", results_name)) $fatal(1, "+results=FILE is missing");
        operations = $fopen(operations_name, "r");
        results = $fopen(results_name, "w");
        if (operations == 0 || results == 0) $fatal(1, "cannot open the files of operations and results");
        idle = 0;
        repeat (2) @(negedge clk);
        rst = 0;
        while (idle < 8) begin
            @(negedge clk);
            if ($fscanf(operations, "%h %h %h\n", next_operand, next_old, next_arriving) == 3) begin
                valid = 1;
                operand = next_operand;
                old = next_old;
                arriving = next_arriving;
            end else begin
                valid = 0;
                idle = idle + 1;
            end
        end
        $fclose(results);
        $finish;
    end
    always @(posedge clk) if (result_valid && !rst) $fwrite(results, "%064h\n", result);
endmodule
