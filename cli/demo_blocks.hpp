// SPDX-License-Identifier: Apache-2.0
// The demo's trunk: z += update_outgoing(z); z += update_incoming(z), a few times over, in place, and the check of its end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "demo_random.hpp"
#include "host_tensor.hpp"
#include "trimul/trimul.h"

namespace trimul::cli {

/// Parameters of one update as an untrained network might start, except that nothing starts at zero: normal projections scaled by
/// their fan-in (the output's smaller, as befits one of many residual steps) and gates that are mostly open (bias 1). The rows of b
/// equal those of a, so that y(i, j) says how alike the surroundings of i and j are; p_in's bias centres the projected values over
/// the pair representation they are made for, so that what all pairs share does not drown that.
class UpdateParameters {
 public:
  /// `mean_row`: mean over all unmasked pairs of the normalised rows, [C_z].
  UpdateParameters(const std::vector<double>& mean_row, std::int64_t c_hidden, NormalGenerator& random);
  UpdateParameters(const UpdateParameters&) = delete;
  UpdateParameters& operator=(const UpdateParameters&) = delete;
  [[nodiscard]] const trimul_parameters& view() const { return view_; }
  /// The tensor behind one of view()'s fields.
  [[nodiscard]] const HostTensor& tensor_of(const trimul_tensor* view) const;

 private:
  const trimul_tensor* add(std::vector<std::int64_t> shape, const std::vector<float>& values);

  std::vector<HostTensor> tensors_;
  std::vector<trimul_tensor> views_;
  trimul_parameters view_ = TRIMUL_PARAMETERS_INIT;
};

struct BlocksResult {
  std::string implementation;
  std::size_t workspace_bytes = 0;
  double flop = 0;                  // of one update
  std::vector<double> times_us;     // of each update, in order
  double relative_rms_error = 0;    // sampled cells of the last update against the fp64 reference
  double relative_worst_error = 0;  // largest difference over the reference's RMS
  std::int64_t checked_cells = 0;
};

/// Runs `blocks` blocks on z [N, N, C_z] in place, on `device`. mask: fp32 [N, N]. `report` is told what goes on.
BlocksResult run_blocks(const HostTensor& z, const HostTensor& mask, std::int64_t blocks, const trimul_device& device, std::uint64_t seed,
                        const std::function<void(std::string)>& report);

/// Whether `device` serves the demo's updates of pair representations [N, N, c_z] of this dtype.
bool serves_blocks(const trimul_device& device, trimul_dtype dtype, std::int64_t c_z);

/// Relative RMS error that docs/op.md allows a result of this dtype on this device.
double allowed_error(trimul_dtype dtype, const trimul_device& device);

}  // namespace trimul::cli
