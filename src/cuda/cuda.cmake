# SPDX-License-Identifier: Apache-2.0
# The CUDA implementations: static cudart, no link to the driver, so that the library loads on machines without one.
target_sources(trimul_objects PRIVATE
  cuda/host/call_key.cpp cuda/host/code.cpp cuda/host/device_query.cpp cuda/host/mask_params.cpp cuda/host/memory.cpp cuda/host/tensor_map.cpp
  cuda/sm80/heuristics.cpp cuda/sm80/implementation.cpp)
list(JOIN TRIMUL_PORTABLE_ARCHITECTURES " " architecture_words)  # a list would become several definitions
target_compile_definitions(trimul_objects PRIVATE TRIMUL_HAVE_CUDA=1 "TRIMUL_CUDA_ARCHITECTURES=\"${architecture_words}\"")
target_include_directories(trimul_objects SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})

# Kernels of one implementation, for the architectures that it is for. Device code is compressed, to a third (seven kinds of it: 74 MB, 22 then), where every
# driver that runs the toolkit's programs reads that: from CUDA 13 on; drivers before 12.4 do not.
function(trimul_kernels name architectures)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(${name} PRIVATE trimul_options)
  target_compile_options(${name} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;$<$<BOOL:${TRIMUL_CUDA_LINEINFO}>:-lineinfo>;$<$<VERSION_GREATER_EQUAL:${CMAKE_CUDA_COMPILER_VERSION},13.0>:--compress-mode=size>>")
  # A spill or a stack frame in a kernel fails the build of the architecture that kernels are tuned on. Others have other schedules: there a few of the
  # portable kernels keep up to 100 bytes outside of their inner loops in local memory.
  set(others ${architectures})
  list(FILTER others EXCLUDE REGEX "^90|virtual$")
  if(NOT others)
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error>")
  endif()
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${architectures}" CUDA_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON)
  set(TRIMUL_OBJECTS ${TRIMUL_OBJECTS} $<TARGET_OBJECTS:${name}> PARENT_SCOPE)
endfunction()

trimul_kernels(trimul_kernels_portable "${TRIMUL_PORTABLE_ARCHITECTURES}"
  cuda/host/chain.cu cuda/sm80/packed_weights.cu cuda/sm80/scaled_weights.cu cuda/sm80/mask_scale.cu
  cuda/sm80/input_projection/launch.cu cuda/sm80/triangle_contraction/launch.cu cuda/sm80/output_projection/launch.cu)
if(TRIMUL_HOPPER_ARCHITECTURES)
  target_sources(trimul_objects PRIVATE cuda/sm90/heuristics.cpp cuda/sm90/implementation.cpp)
  target_compile_definitions(trimul_objects PRIVATE TRIMUL_HAVE_SM90=1)
  trimul_kernels(trimul_kernels_sm90 "${TRIMUL_HOPPER_ARCHITECTURES}"
    cuda/sm90/packed_weights.cu
    cuda/sm90/input_projection/launch.cu cuda/sm90/input_projection/streaming_launch.cu cuda/sm90/triangle_contraction/launch.cu
    cuda/sm90/output_projection/launch.cu cuda/sm90/output_projection/streaming_launch.cu)
endif()
list(APPEND TRIMUL_LINK CUDA::cudart_static)
