// The partial output of a GEMM as a function of GPU, sector and +operand_seed: FP16 numbers of moderate size, and some
// special ones. One cycle after `enable`.
//   word(gpu, s, w) = lowbias32(lowbias32(seed * 64 + gpu) ^ (8 s + w)),  w = 0..7, lowest first
// where lowbias32 is C. Wellons' 32-bit mixing function. Each half h of a word is one element:
//   sign h[15], exponent field 8 + h[13:10] (magnitudes 2**-7 to 2**9), fraction h[9:0];
//   when h[15:4] is 12'habc instead SPECIAL[h[3:0]].
module operand_array (
    input  logic         clk,
    input  int           id,
    input  logic         enable,
    input  logic [31:0]  address,
    output logic [255:0] data
);
    // +0 -0, smallest and largest subnormals, smallest normal, largest, infinities, NaN, 1, -1 and neighbours of 1
    localparam logic [255:0] SPECIAL = {
        16'hbbff, 16'h3bff, 16'h3c01, 16'hbc00, 16'h3c00, 16'h7e00, 16'hfc00, 16'h7c00,
        16'hfbff, 16'h7bff, 16'h0400, 16'h83ff, 16'h03ff, 16'h0001, 16'h8000, 16'h0000
    };
    int seed;
    logic [31:0] key;
    logic keyed = 0;

    function automatic logic [31:0] lowbias32(input logic [31:0] value);
        logic [31:0] x;
        x = value;
        x = (x ^ (x >> 16)) * 32'h7feb352d;
        x = (x ^ (x >> 15)) * 32'h846ca68b;
        return x ^ (x >> 16);
    endfunction

    function automatic logic [15:0] element(input logic [15:0] h);
        if (h[15:4] == 12'habc) return SPECIAL[16 * h[3:0] +: 16];
        return {h[15], 5'd8 + {1'b0, h[13:10]}, h[9:0]};
    endfunction

    always @(posedge clk) begin
        if (!keyed) begin
            keyed <= 1;
            if (!$value$plusargs("operand_seed=%d", seed)) seed = 0;
            key <= lowbias32(32'(seed * 64 + id));
        end
        if (enable)
            for (int w = 0; w < 8; w++) begin
                logic [31:0] word;
                word = lowbias32(key ^ {address[28:0], 3'(w)});
                data[32 * w +: 32] <= {element(word[31:16]), element(word[15:0])};
            end
    end
endmodule
