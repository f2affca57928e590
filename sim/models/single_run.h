// In the place of a server of many runs, of a model for one.
#pragma once

#include <stdexcept>

#include "session.h"
#include "system.h"

namespace {

void serve(System&, const Session&) { throw std::runtime_error("this model was built for single runs"); }

}  // namespace
