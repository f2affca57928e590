// Which mutant of the design is active: +mutant=N, or the number in the file `mutant` of the working directory, or none.
module mutant_select (output logic [15:0] mutant);
    int number, file;
    initial begin
        number = 0;
        if (!$value$plusargs("mutant=%d", number)) begin
            file = $fopen("mutant", "r");
            if (file != 0) begin
                if ($fscanf(file, "%d", number) != 1) $fatal(1, "the file `mutant` holds no number");
                $fclose(file);
            end
        end
        mutant = number[15:0];
    end
endmodule
