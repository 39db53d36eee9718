// SPDX-License-Identifier: Apache-2.0
// 8x8 matrices of 16-bit elements between shared memory and registers (PTX ISA "ldmatrix" sm_75, "stmatrix" sm_90), and products of them
// that one warp computes ("mma" sm_80). Whole warp, converged. Lane l passes the address of row l % 8 of matrix l / 8; a row is 16 bytes,
// 16-byte aligned.
#pragma once

#include <cstdint>

namespace trimul::cuda::ptx {

/// ldmatrix .x4: lane l receives elements 2 (l % 4), 2 (l % 4) + 1 of row l / 4 of each matrix.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&registers)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address)
               : "memory");
}

/// ldmatrix .x4.trans: the same of the transposed matrices.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&registers)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address)
               : "memory");
}

/// stmatrix .x4: the inverse of ldmatrix_x4.
__device__ __forceinline__ void stmatrix_x4(std::uint32_t address, const std::uint32_t (&registers)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(registers[0]), "r"(registers[1]),
               "r"(registers[2]), "r"(registers[3])
               : "memory");
}

/// stmatrix .x4.trans: the inverse of ldmatrix_x4_trans.
__device__ __forceinline__ void stmatrix_x4_trans(std::uint32_t address, const std::uint32_t (&registers)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(registers[0]),
               "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
               : "memory");
}

/// mma.sync m16n8k16, bf16 operands, fp32 sums: d += A B. Lane l holds, with g = l / 4 and t = 2 (l % 4): of A the rows g, g + 8 at columns
/// t, t + 1, then the same rows at t + 8, t + 9; of B (16 x 8) rows t, t + 1, then t + 8, t + 9, of column g; of d row g at columns t, t +
/// 1, then row g + 8.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same with fp16 operands.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// tanh.approx.f32 (sm_75): absolute error at most 5e-4 relative to 1 (docs/numerics.md), 8 clocks a warp.
__device__ __forceinline__ float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// rcp.approx.ftz.f32: within one unit in the last place; 0 of infinity.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// cvt.f32.f16 of either half of a register.
__device__ __forceinline__ float widen_low_half(std::uint32_t pair) {
  float value;
  asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tcvt.f32.f16 %0, low;\n\t}" : "=f"(value) : "r"(pair));
  return value;
}
__device__ __forceinline__ float widen_high_half(std::uint32_t pair) {
  float value;
  asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tcvt.f32.f16 %0, high;\n\t}" : "=f"(value) : "r"(pair));
  return value;
}

/// prmt.b32: the bytes of {0, value} that the selector names.
template <std::uint32_t kSelector>
__device__ __forceinline__ std::uint32_t permute_bytes(std::uint32_t value) {
  std::uint32_t result;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(result) : "r"(value), "n"(kSelector));
  return result;
}

/// mul.rn.bf16x2 (sm_90): per half the product, rounded to nearest even.
__device__ __forceinline__ std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t result;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

}  // namespace trimul::cuda::ptx
