/* SPDX-License-Identifier: Apache-2.0
 * Preloaded in front of libtrimul, gives the machine one GPU that is none: its memory is a part of the host's that is fenced off, and
 * its work is the CPU's. Whatever the command hands to a problem on that device must lie inside the fence, else the call fails as the
 * real one would. STAND_IN_FAIL=1 makes every execution a device error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "trimul/trimul.h"

enum { kMostAllocations = 256 };
static struct {
  char* begin;
  size_t bytes;
} allocations[kMostAllocations];

static const trimul_device kCpu = {TRIMUL_CPU, 0};

static void* real(const char* name) {
  void* function = dlsym(RTLD_NEXT, name);
  if (function == NULL) abort();
  return function;
}

static int is_fenced(const void* memory) {
  for (int k = 0; k < kMostAllocations; ++k)
    if (allocations[k].begin != NULL && (const char*)memory >= allocations[k].begin &&
        (const char*)memory < allocations[k].begin + allocations[k].bytes)
      return 1;
  return 0;
}

static int is_stand_in(trimul_device device) {
  return device.type == TRIMUL_CUDA && device.index == 0;
}

static int has_failed = 0;

const char* trimul_last_error(void) {
  return has_failed ? "the stand-in failed, as it was told to" : ((const char* (*)(void))real("trimul_last_error"))();
}

/* A tensor on the stand-in as one on the CPU; one that is somewhere else ends the process. */
static trimul_tensor moved(const trimul_tensor* tensor, const char* name) {
  trimul_tensor copy = *tensor;
  if (!is_stand_in(tensor->device) || !is_fenced(tensor->data)) {
    fprintf(stderr, "stand-in: %s is not on the device\n", name);
    exit(99);
  }
  copy.device = kCpu;
  return copy;
}

int32_t trimul_cuda_device_count(void) {
  return 1;
}

trimul_status trimul_memory_allocate(trimul_device device, size_t bytes, void** memory) {
  if (!is_stand_in(device)) return ((trimul_status(*)(trimul_device, size_t, void**))real("trimul_memory_allocate"))(device, bytes, memory);
  for (int k = 0; k < kMostAllocations; ++k)
    if (allocations[k].begin == NULL) {
      allocations[k].bytes = bytes + 1; /* so that no allocation is empty */
      allocations[k].begin = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      *memory = allocations[k].begin;
      return TRIMUL_OK;
    }
  return TRIMUL_OUT_OF_MEMORY;
}

void trimul_memory_free(trimul_device device, void* memory) {
  if (!is_stand_in(device)) {
    ((void (*)(trimul_device, void*))real("trimul_memory_free"))(device, memory);
    return;
  }
  for (int k = 0; k < kMostAllocations; ++k)
    if (allocations[k].begin == memory) {
      munmap(allocations[k].begin, allocations[k].bytes);
      allocations[k].begin = NULL;
    }
}

trimul_status trimul_memory_copy(trimul_device to_device, void* to, trimul_device from_device, const void* from, size_t bytes,
                                 void* stream) {
  (void)stream;
  if (bytes == 0) return TRIMUL_OK;
  if (is_stand_in(to_device) != is_fenced(to) || is_stand_in(from_device) != is_fenced(from)) {
    fprintf(stderr, "stand-in: a copy's memory is not where it says\n");
    exit(99);
  }
  memcpy(to, from, bytes);
  return TRIMUL_OK;
}

/* "cuda:sm90" is served here by the CPU implementation and by nothing else; other problems go to the library. */
trimul_status trimul_plan_create(const trimul_problem* problem, const trimul_plan_options* options, trimul_plan** plan) {
  trimul_status (*create)(const trimul_problem*, const trimul_plan_options*, trimul_plan**) = real("trimul_plan_create");
  if (!is_stand_in(problem->device) || options->arch != NULL) return create(problem, options, plan);
  const int wanted = options->implementation == NULL || strcmp(options->implementation, "cuda:sm90") == 0;
  if (!wanted || problem->x_dtype == TRIMUL_F64) {
    trimul_problem impossible = *problem; /* a refusal of the library's own, with its message */
    impossible.device = kCpu;
    impossible.precision = TRIMUL_PRECISION_MXFP8;
    return create(&impossible, NULL, plan);
  }
  trimul_problem on_cpu = *problem;
  trimul_plan_options any = *options;
  on_cpu.device = kCpu;
  any.implementation = "cpu";
  return create(&on_cpu, &any, plan);
}

trimul_status trimul_implementation_can_run(const char* name, const trimul_problem* problem, const char* arch, const char** reason) {
  trimul_status (*can_run)(const char*, const trimul_problem*, const char*, const char**) = real("trimul_implementation_can_run");
  if (!is_stand_in(problem->device) || arch != NULL) return can_run(name, problem, arch, reason);
  *reason = strcmp(name, "cuda:sm90") != 0 ? "runs elsewhere" : problem->x_dtype == TRIMUL_F64 ? "does not take fp64" : NULL;
  return TRIMUL_OK;
}

/* Weights and execution cannot see the plan's device; tensors of the host mean that the problem is the CPU's. */
trimul_status trimul_weights_create(const trimul_plan* plan, const trimul_parameters* parameters, void* stream, trimul_weights** weights) {
  trimul_status (*create)(const trimul_plan*, const trimul_parameters*, void*, trimul_weights**) = real("trimul_weights_create");
  if (!is_stand_in(parameters->p_in_weight->device)) return create(plan, parameters, stream, weights);
  trimul_tensor tensors[12];
  trimul_parameters on_cpu = *parameters;
  const trimul_tensor** field = &on_cpu.norm_in_weight;
  for (int k = 0; k < 12; ++k)
    if (field[k] != NULL) {
      tensors[k] = moved(field[k], "a parameter");
      field[k] = &tensors[k];
    }
  return create(plan, &on_cpu, stream, weights);
}

trimul_status trimul_execute(const trimul_plan* plan, const trimul_execute_args* args) {
  trimul_status (*execute)(const trimul_plan*, const trimul_execute_args*) = real("trimul_execute");
  if (!is_stand_in(args->x->device)) return execute(plan, args);
  has_failed = getenv("STAND_IN_FAIL") != NULL;
  if (has_failed) return TRIMUL_DEVICE_ERROR;
  trimul_execute_args on_cpu = *args;
  const trimul_tensor x = moved(args->x, "x"), out = moved(args->out, "out");
  trimul_tensor mask;
  if (args->mask != NULL) {
    mask = moved(args->mask, "mask");
    on_cpu.mask = &mask;
  }
  if (args->workspace_bytes > 0 && !is_fenced(args->workspace)) exit(99);
  on_cpu.x = &x;
  on_cpu.out = &out;
  return execute(plan, &on_cpu);
}
