/* SPDX-License-Identifier: Apache-2.0
 * One triangle multiplicative update (outgoing) from plain C. */
#include <stdio.h>
#include <stdlib.h>
#include <trimul/trimul.h>

enum { N = 16, CZ = 32, C = 32 }; /* tokens, pair width, hidden width */

static float x[N * N * CZ], out[N * N * CZ], p_in[2 * C * CZ], g_in[2 * C * CZ], p_out[CZ * C], g_out[CZ * CZ];

static void fill(float* values, size_t count, float scale) {
  for (size_t k = 0; k < count; ++k) values[k] = scale * ((float)rand() / (float)RAND_MAX - 0.5F);
}

static trimul_tensor tensor(float* data, int32_t ndim, const int64_t* sizes) {
  const trimul_tensor view = {data, {TRIMUL_CPU, 0}, ndim, TRIMUL_F32, sizes, NULL};
  return view;
}

int main(void) {
  const int64_t pair[] = {N, N, CZ}, in[] = {2 * C, CZ}, projection[] = {CZ, C}, gate[] = {CZ, CZ};
  const trimul_tensor tx = tensor(x, 3, pair), tout = tensor(out, 3, pair), tp_in = tensor(p_in, 2, in), tg_in = tensor(g_in, 2, in),
                      tp_out = tensor(p_out, 2, projection), tg_out = tensor(g_out, 2, gate);
  trimul_parameters parameters = TRIMUL_PARAMETERS_INIT;
  trimul_update_args args = TRIMUL_UPDATE_ARGS_INIT;
  fill(x, N * N * CZ, 2.0F), fill(p_in, 2 * C * CZ, 0.6F), fill(g_in, 2 * C * CZ, 0.6F), fill(p_out, CZ * C, 0.6F),
      fill(g_out, CZ * CZ, 0.6F);
  parameters.p_in_weight = &tp_in, parameters.g_in_weight = &tg_in, parameters.p_out_weight = &tp_out, parameters.g_out_weight = &tg_out;
  args.x = &tx, args.out = &tout, args.parameters = &parameters, args.direction = TRIMUL_OUTGOING;
  if (trimul_update(&args) != TRIMUL_OK) return fprintf(stderr, "%s\n", trimul_last_error()), 1;
  printf("trimul %s: out[0,1,0] = %f\n", trimul_version(), (double)out[CZ]);
  return 0;
}
