// Writes the bits of an instrumented design, bit 0 first, as one line of source_coverage.txt in the working directory
// when the simulation ends. Several such designs in one simulation write a line each.
module source_coverage_writer #(
    parameter WIDTH = 1
) (
    /*verilator coverage_off*/ input logic [WIDTH-1:0] seen /*verilator coverage_on*/
);
    integer file, index;
    final begin
        file = $fopen("source_coverage.txt", "a");
        for (index = 0; index < WIDTH; index = index + 1) $fwrite(file, "%b", seen[index]);
        $fwrite(file, "\n");
        $fclose(file);
    end
endmodule
