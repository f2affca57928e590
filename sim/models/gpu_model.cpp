// The compiled GPU model as a DPI object: one call per clock cycle instead of signal-by-signal coupling.
//
// The model is built once and serves rings of every size. A step applies the inputs, raises the clock and hands back the
// outputs; the falling edge follows at once, because nothing outside the model happens at it.

#include <cstring>

#include "Vgpu.h"
#include "svdpi.h"

extern "C" {

void* gpu_create(const char* name, int rank) {
    Vgpu* const model = new Vgpu{name};
    model->clk = 0;
    model->rst = 1;
    model->rank = static_cast<unsigned char>(rank);
    std::memset(&model->inputs, 0, sizeof(model->inputs));
    model->eval();
    return model;
}

void gpu_step(void* handle, unsigned char rst, const svBitVecVal* inputs, svBitVecVal* outputs) {
    Vgpu* const model = static_cast<Vgpu*>(handle);
    model->rst = rst;
    std::memcpy(&model->inputs, inputs, sizeof(model->inputs));
    model->clk = 1;
    model->eval();
    std::memcpy(outputs, &model->outputs, sizeof(model->outputs));
    model->clk = 0;
    model->eval();
}

void gpu_finish(void* handle) {
    // Runs the `final` blocks inside; the process ends right after.
    static_cast<Vgpu*>(handle)->final();
}
}
