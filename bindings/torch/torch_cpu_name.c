/* SPDX-License-Identifier: Apache-2.0
 * Stands for libtorch_cpu.so while the operators are linked; never installed. */
extern const int trimul_no_name_of_torch;
const int trimul_no_name_of_torch = 0;
