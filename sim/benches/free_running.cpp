// Runs a model whose only input is `clk` until it ends the simulation: nothing but clock edges.

#include <memory>

#include MODEL_HEADER

int main(int argc, char** argv) {
    const auto context = std::make_unique<VerilatedContext>();
    context->commandArgs(argc, argv);
    const auto model = std::make_unique<MODEL>(context.get());
    while (!context->gotFinish()) {
        model->clk = 1;
        model->eval();
        model->clk = 0;
        model->eval();
    }
    model->final();
    return 0;
}
