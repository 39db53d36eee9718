// SPDX-License-Identifier: Apache-2.0
// z += update_outgoing(z) in place through a plan, then the same cell from the fp64 reference.
#include <cstdio>
#include <random>
#include <trimul/trimul.hpp>
#include <vector>

int main() try {
  const std::int64_t n = 48, c_z = 64, c = 32;  // tokens, pair width, hidden width
  std::mt19937 generator(7);
  const auto random = [&](std::int64_t count, double scale) {
    std::normal_distribution<double> normal(0.0, scale);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(normal(generator));
    return values;
  };
  std::vector<float> z = random(n * n * c_z, 1.0);
  const auto p_in = random(2 * c * c_z, 0.125), g_in = random(2 * c * c_z, 0.125), p_out = random(c_z * c, 0.18),
             g_out = random(c_z * c_z, 0.125);
  const trimul::Parameters parameters{.p_in_weight = trimul::Tensor(p_in, {2 * c, c_z}),
                                      .g_in_weight = trimul::Tensor(g_in, {2 * c, c_z}),
                                      .p_out_weight = trimul::Tensor(p_out, {c_z, c}),
                                      .g_out_weight = trimul::Tensor(g_out, {c_z, c_z})};
  const trimul::Tensor pair(z, {1, n, n, c_z});
  const std::vector<trimul::Cell> cells{{0, 5, 9}};
  const std::vector<double> expected = trimul::reference_at(cells, pair, nullptr, parameters, {.residual = true});

  const trimul::Plan plan({.tokens = n, .c_z = c_z, .c_hidden = c, .residual = true});
  const trimul::Weights weights = plan.prepare_weights(parameters);
  const trimul::Workspace workspace(plan.workspace_bytes());
  plan.execute(pair, nullptr, weights, pair, workspace);
  std::printf("%s: z[5,9,0] = %.6f, fp64 reference %.6f\n", plan.implementation().c_str(),
              static_cast<double>(z[static_cast<std::size_t>((5 * n + 9) * c_z)]), expected[0]);
} catch (const trimul::Error& error) {
  std::fprintf(stderr, "%s: %s\n", trimul_status_name(error.code()), error.what());
  return 1;
}
