# SPDX-License-Identifier: Apache-2.0
# The CUDA implementations: static cudart, no link to the driver, so that the library loads on machines without one.
target_sources(trimul_objects PRIVATE
  cuda/host/chain.cu cuda/host/device_query.cpp cuda/host/mask_params.cpp cuda/host/memory.cpp cuda/host/tensor_map.cpp
  cuda/sm90/heuristics.cpp cuda/sm90/implementation.cpp cuda/sm90/packed_weights.cu
  cuda/sm90/input_projection/launch.cu cuda/sm90/triangle_contraction/launch.cu cuda/sm90/output_projection/launch.cu)
target_compile_definitions(trimul_objects PRIVATE TRIMUL_HAVE_CUDA=1 TRIMUL_CUDA_ARCHITECTURES="${CMAKE_CUDA_ARCHITECTURES}")
target_include_directories(trimul_objects SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
# A spill or a stack frame in a kernel fails the build.
target_compile_options(trimul_objects PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;$<$<BOOL:${TRIMUL_CUDA_LINEINFO}>:-lineinfo>>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error>")
set_target_properties(trimul_objects PROPERTIES CUDA_VISIBILITY_PRESET hidden)
list(APPEND TRIMUL_LINK CUDA::cudart_static)
