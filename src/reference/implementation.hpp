// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/implementation.hpp"

namespace trimul::reference {

/// "reference": every dtype on the CPU in fp64, slowly; the only one that serves fp64 x.
core::Implementation implementation();

}  // namespace trimul::reference
