// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/implementation.hpp"
#include "cuda/host/chain.hpp"

namespace trimul::cuda {

/// A number that no other plan of the process has; an address may come back.
std::uint64_t next_plan_id();

/// What decides the parameters of a call's kernels: plan, tensors and mask, and the packed weights at `packed` or the parameters that are
/// packed in the call. Empty for a mask of more dimensions than a key has room for.
ChainKey call_key(std::uint64_t plan, const core::ExecuteArgs& args, const void* packed);
ChainKey call_key(std::uint64_t plan, const core::ExecuteArgs& args, const core::Parameters& parameters);

}  // namespace trimul::cuda
