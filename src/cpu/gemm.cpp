// SPDX-License-Identifier: Apache-2.0
#include "cpu/gemm.hpp"

#include <memory>
#include <vector>

#include "core/error.hpp"
#include "cpu/row_kernels.hpp"

#if defined(TRIMUL_HAVE_ONEDNN)
#include <omp.h>

#include <oneapi/dnnl/dnnl.h>
#endif

namespace trimul::cpu {

#if defined(TRIMUL_HAVE_ONEDNN)

std::string gemm_library() {
  const dnnl_version_t* version = dnnl_version();
  return core::text("oneDNN ", version->major, ".", version->minor, ".", version->patch);
}

std::int64_t gemm_scratch_floats() {
  return 0;
}

void prepare_gemm() {
  // oneDNN generates its code in the first products, and a process does not survive a failed allocation there (2.6: a NULL function is
  // called, or glibc aborts while it unwinds pthread_once). So it happens here, before the big buffers, with room to spare.
  static const bool ready = [] {
    constexpr std::int64_t kSize = 48;  // past the sizes that oneDNN treats without packing
    constexpr std::size_t kRoomBytes = 64U << 20;
    std::unique_ptr<volatile char[]> room(new volatile char[kRoomBytes]);
    room[0] = 0;
    room.reset();
    const SingleThreadScope one_thread;
    const std::vector<float> operand(kSize * kSize, 1.0F);
    std::vector<float> product(kSize * kSize);
    for (const Transpose a : {Transpose::kNo, Transpose::kYes})
      for (const Transpose b : {Transpose::kNo, Transpose::kYes})
        gemm(kSize, kSize, kSize, {operand.data(), kSize, a}, {operand.data(), kSize, b}, product.data(), kSize, nullptr);
    return true;
  }();
  static_cast<void>(ready);
}

SingleThreadScope::SingleThreadScope() : saved_threads_(omp_get_max_threads()) {
  // libgomp ends the process when it cannot allocate a thread's settings. Where there is no memory at all, this throws first.
  const std::unique_ptr<volatile char[]> probe(new volatile char[4096]);
  probe[0] = 0;
  omp_set_num_threads(1);
}
SingleThreadScope::~SingleThreadScope() {
  omp_set_num_threads(saved_threads_);
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b, float* c, std::int64_t c_row_stride, float*) {
  const auto flag = [](Transpose transpose) { return transpose == Transpose::kYes ? 'T' : 'N'; };
  const dnnl_status_t status =
      dnnl_sgemm(flag(a.transpose), flag(b.transpose), m, n, k, 1.0F, a.data, a.row_stride, b.data, b.row_stride, 0.0F, c, c_row_stride);
  if (status == dnnl_out_of_memory)
    throw core::Error(core::StatusCode::kOutOfMemory, "host memory: oneDNN's dnnl_sgemm could not allocate its buffers");
  if (status != dnnl_success)
    throw core::Error(core::StatusCode::kInternal,
                      core::text("dnnl_sgemm failed with status ", static_cast<int>(status), " at m=", m, " n=", n, " k=", k));
}

#else

std::string gemm_library() {
  return "none (blocked loops)";
}

std::int64_t gemm_scratch_floats() {
  return row_kernels().gemm_scratch_floats;
}

void prepare_gemm() {}

SingleThreadScope::SingleThreadScope() = default;
SingleThreadScope::~SingleThreadScope() = default;

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix& a, const Matrix& b, float* c, std::int64_t c_row_stride,
          float* scratch) {
  row_kernels().gemm(a.transpose == Transpose::kYes, b.transpose == Transpose::kYes, m, n, k, a.data, a.row_stride, b.data, b.row_stride, c,
                     c_row_stride, scratch);
}

#endif

}  // namespace trimul::cpu
