// SPDX-License-Identifier: Apache-2.0
// fp32 matrix products of the CPU implementation: oneDNN where the build has it, own blocked loops elsewhere.
#pragma once

#include <cstdint>
#include <string>

namespace trimul::cpu {

/// "oneDNN 2.6.3" or "none (blocked loops)".
std::string gemm_library();

/// Floats of scratch that one call of gemm needs; 0 with oneDNN.
std::int64_t gemm_scratch_floats();

/// Makes the library ready once a process; std::bad_alloc where memory is too short for that. Before the first gemm.
void prepare_gemm();

/// While one lives, matrix products called from this thread stay on this thread. Needed because oneDNN may be built over OpenMP,
/// whose team size is a property of the calling thread; results then depend neither on it nor on the machine's load.
class SingleThreadScope {
 public:
  SingleThreadScope();
  ~SingleThreadScope();
  SingleThreadScope(const SingleThreadScope&) = delete;
  SingleThreadScope& operator=(const SingleThreadScope&) = delete;

 private:
  [[maybe_unused]] int saved_threads_ = 0;  // only with oneDNN
};

enum class Transpose : bool { kNo = false, kYes = true };

struct Matrix {
  const float* data;
  std::int64_t row_stride;  // elements between rows as stored
  Transpose transpose = Transpose::kNo;
};

/// c[m, n] = op(a)[m, k] op(b)[k, n], row-major, overwriting c. Inside a SingleThreadScope.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b, float* c, std::int64_t c_row_stride,
          float* scratch);

}  // namespace trimul::cpu
