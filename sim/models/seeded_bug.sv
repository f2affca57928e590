// Whether the run is to have the fault NAME: +seeded_bug=NAME.
module seeded_bug #(
    parameter string NAME = ""
) (
    output logic present
);
    string chosen;
    initial begin
        present = 0;
        if ($value$plusargs("seeded_bug=%s", chosen)) present = chosen == NAME;
    end
endmodule
