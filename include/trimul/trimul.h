/* SPDX-License-Identifier: Apache-2.0
 *
 * trimul: the triangle multiplicative update of AlphaFold-class models. C ABI.
 *
 *     z    = LayerNorm(x; norm_in_weight, norm_in_bias, eps)                        over C_z
 *     a, b = sigmoid(z g_in^T + g_in_bias) * (z p_in^T + p_in_bias) * mask          first C rows, second C rows
 *     y    = sum_k a[i,k] * b[j,k]  (outgoing)   or   sum_k a[k,i] * b[k,j]  (incoming), per channel
 *     out  = sigmoid(z g_out^T + g_out_bias) * (LayerNorm(y; norm_out_*, eps) p_out^T + p_out_bias)   [+ x]
 *
 * Letters: B batch (all leading dimensions folded), N tokens, C_z pair width, C hidden width.
 * Source: Jumper et al. 2021, Supplementary Methods, Algorithms 11 and 12. docs/op.md is the full contract.
 *
 * Life of a call: describe the problem, create a plan (validates, picks an implementation, sizes the workspace), prepare
 * the weights for it once, execute as often as needed. Every function that can fail returns a trimul_status; the text of
 * this thread's last failure is trimul_last_error(). Nothing here prints or ends the process.
 *
 * ABI: structs that may grow begin with `struct_size`; set it to sizeof the struct (the TRIMUL_*_INIT macros do).
 */
#ifndef TRIMUL_TRIMUL_H
#define TRIMUL_TRIMUL_H

#include <stddef.h>
#include <stdint.h>

#define TRIMUL_VERSION_MAJOR 0
#define TRIMUL_VERSION_MINOR 1
#define TRIMUL_VERSION_PATCH 0

#if defined(__GNUC__)
#define TRIMUL_API __attribute__((visibility("default")))
#else
#define TRIMUL_API
#endif

#if defined(__cplusplus)
#define TRIMUL_NODISCARD [[nodiscard]]
extern "C" {
#elif defined(__GNUC__)
#define TRIMUL_NODISCARD __attribute__((warn_unused_result))
#else
#define TRIMUL_NODISCARD
#endif

/* ---- status -------------------------------------------------------------------------------------------------------- */

typedef enum trimul_status {
  TRIMUL_OK = 0,               /* the call did what it says */
  TRIMUL_INVALID_ARGUMENT = 1, /* a shape, dtype, name, value or overlap that no implementation could accept */
  TRIMUL_UNSUPPORTED = 2,      /* legal in principle, not served here; the message says what would be */
  TRIMUL_OUT_OF_MEMORY = 3,    /* an allocation failed; nothing was written, a smaller call works */
  TRIMUL_DEVICE_ERROR = 4,     /* the driver reported an error; the message holds call text and location */
  TRIMUL_INTERNAL = 5          /* a bug in this library */
} trimul_status;

/* Name of a status ("INVALID_ARGUMENT"); "UNKNOWN" for any other number. Never NULL. */
TRIMUL_API const char* trimul_status_name(trimul_status status);

/* Text of this thread's last failed call, "" if none failed yet. Valid until this thread's next trimul call. */
TRIMUL_API const char* trimul_last_error(void);

/* "major.minor.patch" of the library that is loaded (the macros above are those of the header). */
TRIMUL_API const char* trimul_version(void);

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

typedef enum trimul_dtype {
  TRIMUL_F64 = 1,
  TRIMUL_F32 = 2,
  TRIMUL_F16 = 3,  /* IEEE binary16 */
  TRIMUL_BF16 = 4, /* bfloat16 */
  TRIMUL_BOOL = 5, /* one byte, 0 or not 0; masks only, as all below */
  TRIMUL_U8 = 6,
  TRIMUL_I8 = 7,
  TRIMUL_I16 = 8,
  TRIMUL_I32 = 9,
  TRIMUL_I64 = 10
} trimul_dtype;

/* Bytes of one element; 0 for a number outside the enum. */
TRIMUL_API size_t trimul_dtype_bytes(trimul_dtype dtype);
/* "bf16", "fp32", ... ; "unknown" for a number outside the enum. Never NULL. */
TRIMUL_API const char* trimul_dtype_name(trimul_dtype dtype);

/* Device kinds carry DLPack's numbers. */
typedef enum trimul_device_type { TRIMUL_CPU = 1, TRIMUL_CUDA = 2 } trimul_device_type;

typedef struct trimul_device {
  int32_t type;  /* a trimul_device_type */
  int32_t index; /* 0 for the CPU */
} trimul_device;

enum { TRIMUL_MAX_NDIM = 32 }; /* tensors with more dimensions are INVALID_ARGUMENT */

/* A borrowed view of memory, shaped like DLPack's DLTensor. The library never keeps one beyond the call it is passed to.
 * `data` points at element [0,...,0] and must be aligned to the element size. Strides count elements, may be 0 or negative
 * where the argument allows strides, and NULL means contiguous (row-major). */
typedef struct trimul_tensor {
  void* data; /* may be NULL only for a tensor without elements */
  trimul_device device;
  int32_t ndim;
  int32_t dtype;          /* a trimul_dtype */
  const int64_t* sizes;   /* [ndim], elements */
  const int64_t* strides; /* [ndim], elements, or NULL */
} trimul_tensor;

/* Whether two tensors share no byte, by the ranges that their sizes and strides reach: INVALID_ARGUMENT naming both where they do, and as
 * every call for a malformed tensor. For callers that copy an argument on its way in and owe the rules of aliasing to the original. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_tensor_check_disjoint(const char* name, const trimul_tensor* tensor,
                                                                       const char* other_name, const trimul_tensor* other);

/* ---- the problem --------------------------------------------------------------------------------------------------- */

typedef enum trimul_direction { TRIMUL_OUTGOING = 0, TRIMUL_INCOMING = 1 } trimul_direction;

/* Arithmetic, see docs/op.md "Precision". Numbers are those of cuEquivariance where it has them. */
typedef enum trimul_precision {
  TRIMUL_PRECISION_NONE = -1,   /* as DEFAULT */
  TRIMUL_PRECISION_DEFAULT = 0, /* 16-bit x: operands in x's dtype, fp32 sums; fp32 x: as TF32X3 or better */
  TRIMUL_PRECISION_TF32 = 1,    /* fp32 x: operands rounded to TF32's eleven bits (CPU: fp32) */
  TRIMUL_PRECISION_TF32X3 = 2,  /* fp32 x: operands in two parts of as many bits, three products (CPU: fp32) */
  TRIMUL_PRECISION_IEEE = 3,    /* fp32 fused multiply-add; 16-bit operands are converted exactly */
  TRIMUL_PRECISION_MXFP8 = 4,   /* UNSUPPORTED today */
  TRIMUL_PRECISION_BF16 = 5     /* x of any float dtype is rounded to bf16 once; the result is bf16 */
} trimul_precision;

/* What is to be computed. All sizes count elements. */
typedef struct trimul_problem {
  size_t struct_size;
  int64_t batch;        /* B >= 0: product of x's leading dimensions, 1 if there are none */
  int64_t tokens;       /* N >= 0 */
  int64_t c_z;          /* C_z >= 1 */
  int64_t c_hidden;     /* C >= 1, need not equal C_z */
  trimul_device device; /* where x, mask and out live */
  int32_t direction;    /* a trimul_direction */
  int32_t x_dtype;      /* F32, F16, BF16; F64 on the CPU only */
  int32_t precision;    /* a trimul_precision */
  float eps;            /* finite, > 0; both LayerNorms use it */
  int32_t has_mask;     /* 0 or 1: a fact that execute checks, as the next three */
  int32_t has_in_bias;  /* p_in_bias or g_in_bias (or both) will be given */
  int32_t has_out_bias; /* p_out_bias or g_out_bias (or both) will be given */
  int32_t residual;     /* out = x + update, added in fp32 and rounded once; `out` may be exactly x */
} trimul_problem;

#define TRIMUL_PROBLEM_INIT \
  { sizeof(trimul_problem), 1, 0, 0, 0, {TRIMUL_CPU, 0}, TRIMUL_OUTGOING, TRIMUL_F32, TRIMUL_PRECISION_DEFAULT, 1e-5f, 1, 0, 0, 0 }

/* dtype of the result: x_dtype, or BF16 under TRIMUL_PRECISION_BF16. INVALID_ARGUMENT for a malformed problem. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_problem_out_dtype(const trimul_problem* problem, trimul_dtype* out_dtype);

/* ---- implementations ----------------------------------------------------------------------------------------------- */

/* Implementations in the order in which they are tried ("cuda:sm90", "cuda:sm80", "cpu", "reference"): the first that
 * accepts a problem serves it. Names of this list are known in every build, also where the implementation is absent. */
TRIMUL_API size_t trimul_implementation_count(void);
/* Name of entry `index`, NULL past the end. */
TRIMUL_API const char* trimul_implementation_name(size_t index);
/* One line about entry `index` in this build (what it uses, or that it is absent), NULL past the end. */
TRIMUL_API const char* trimul_implementation_description(size_t index);

/* Why an implementation declines a problem. `*reason` is NULL when it accepts, else a sentence that is valid until this
 * thread's next trimul call. `arch`: NULL, or the GPU architecture to assume as in trimul_plan_options. INVALID_ARGUMENT for
 * an unknown name or architecture and for a malformed problem. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_implementation_can_run(const char* name, const trimul_problem* problem, const char* arch,
                                                                        const char** reason);

/* ---- knobs --------------------------------------------------------------------------------------------------------- */

/* One axis of an implementation's choice. Every value of every knob gives bitwise the same result. */
typedef struct trimul_knob {
  const char* name;
  int64_t value;
} trimul_knob;

/* The values that a knob takes: the whole numbers from `least` to `most`. */
typedef struct trimul_knob_range {
  size_t struct_size;
  const char* name; /* never freed */
  int64_t least;
  int64_t most;
} trimul_knob_range;

#define TRIMUL_KNOB_RANGE_INIT \
  { sizeof(trimul_knob_range), NULL, 0, 0 }

/* Knobs of the implementation `name`; 0 where it is absent from this build, and for an unknown name or NULL.
 *   "cpu", "reference"  threads    most threads to use
 *   "cuda:sm90"         k1_parts   blocks that share the output channels of a tile of the input projection
 *                       k2_tile    tile of the contraction: 0 64 x 64, 1 128 x 128, 2 192 x 192, 3 128 x 192 with narrow ones of 128
 *                       overlap    kernels that are launched programmatically dependent on the one before them on the stream, added up:
 *                                  1 input projection, 2 contraction, 4 output projection
 *   "cuda:sm80"         k1_tile    positions of a tile of the input projection: 0 32, 1 64, 2 128
 *                       k2_tile    tile of the contraction: 0 64 x 64, 1 128 x 128
 *                       k3_tile    positions of a tile of the output projection, as k1_tile; a tile that does not fit the device's shared
 *                                  memory at the problem's widths is UNSUPPORTED */
TRIMUL_API size_t trimul_implementation_num_knobs(const char* name);
/* Knob `index` of an implementation. INVALID_ARGUMENT for an unknown name and for an index that is not below its number of knobs. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_implementation_knob(const char* name, size_t index, trimul_knob_range* range);

/* What a plan without knobs would use: one value for each knob, in their order. `implementation` and `arch`: as in trimul_plan_options.
 * The first `capacity` go to `knobs`; `*num_knobs` receives how many there are. Names are never freed. INVALID_ARGUMENT and UNSUPPORTED
 * as trimul_plan_create. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_recommend_knobs(const trimul_problem* problem, const char* implementation,
                                                                 const char* arch, trimul_knob* knobs, size_t capacity, size_t* num_knobs);

/* ---- prepared weights ---------------------------------------------------------------------------------------------- */

/* The twelve parameters in the operator's order. Any float dtype (F64, F32, F16, BF16), each its own; contiguous. NULL
 * entries: LayerNorm weights mean ones, LayerNorm biases zeros, projection biases none; the four projections are required. */
typedef struct trimul_parameters {
  size_t struct_size;
  const trimul_tensor* norm_in_weight;  /* [C_z] */
  const trimul_tensor* norm_in_bias;    /* [C_z] */
  const trimul_tensor* p_in_weight;     /* [2C, C_z], rows [a; b] */
  const trimul_tensor* p_in_bias;       /* [2C] */
  const trimul_tensor* g_in_weight;     /* [2C, C_z], rows [a; b] */
  const trimul_tensor* g_in_bias;       /* [2C] */
  const trimul_tensor* norm_out_weight; /* [C] */
  const trimul_tensor* norm_out_bias;   /* [C] */
  const trimul_tensor* p_out_weight;    /* [C_z, C] */
  const trimul_tensor* p_out_bias;      /* [C_z] */
  const trimul_tensor* g_out_weight;    /* [C_z, C_z] */
  const trimul_tensor* g_out_bias;      /* [C_z] */
} trimul_parameters;

#define TRIMUL_PARAMETERS_INIT \
  { sizeof(trimul_parameters), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/* A private copy of the parameters in one implementation's layout. Later changes of the caller's tensors do not reach it.
 * Immutable; any number of threads and plans may use one at the same time. */
typedef struct trimul_weights trimul_weights;
typedef struct trimul_plan trimul_plan;

/* Packs parameters for `plan`: the shapes, bias presence and device must be the plan's (else INVALID_ARGUMENT naming the
 * tensor, the dimension, what it is and what was expected). `stream`: the device's stream the parameters are ready on; NULL on
 * the CPU. On success *weights must be given to trimul_weights_destroy. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_weights_create(const trimul_plan* plan, const trimul_parameters* parameters, void* stream,
                                                                trimul_weights** weights);
/* The same into the caller's memory: trimul_plan_packed_bytes on the plan's device, 256-byte aligned, which outlive the weights. For hosts
 * whose allocator is the only one that may be asked, as while a graph is captured. INVALID_ARGUMENT for memory that is too small or
 * misaligned, or touches a parameter. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_weights_pack(const trimul_plan* plan, const trimul_parameters* parameters, void* memory,
                                                              size_t memory_bytes, void* stream, trimul_weights** weights);
/* Bytes of trimul_weights_pack's memory. 0 where packed weights lie in the host's own, as on the CPU; then the memory may be NULL. */
TRIMUL_API size_t trimul_plan_packed_bytes(const trimul_plan* plan);
/* NULL is allowed. */
TRIMUL_API void trimul_weights_destroy(trimul_weights* weights);
/* Bytes the packed copy holds. */
TRIMUL_API size_t trimul_weights_bytes(const trimul_weights* weights);

/* ---- plan ---------------------------------------------------------------------------------------------------------- */

typedef struct trimul_plan_options {
  size_t struct_size;
  const char* implementation; /* NULL: the first that accepts; a name: that one or UNSUPPORTED with its reason */
  const trimul_knob* knobs;   /* [num_knobs] overrides; unknown name: INVALID_ARGUMENT; a value outside its range: UNSUPPORTED */
  size_t num_knobs;
  const char* arch;    /* NULL: the device of the problem. "sm80", "sm86", "sm89", "sm90", "sm100", "sm120": plan for a GPU of that
                          architecture whether or not one is there; such a plan explains, its execute is UNSUPPORTED */
  int64_t max_threads; /* CPU: bounds the threads that a plan takes by itself, a host's own setting; 0: no bound. The knob goes before it */
} trimul_plan_options;

#define TRIMUL_PLAN_OPTIONS_INIT \
  { sizeof(trimul_plan_options), NULL, NULL, 0, NULL, 0 }

/* Validates the problem, chooses the implementation and its tiles, computes the workspace. `options` may be NULL.
 * On success *plan must be given to trimul_plan_destroy. UNSUPPORTED lists every implementation with its reason. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_plan_create(const trimul_problem* problem, const trimul_plan_options* options,
                                                             trimul_plan** plan);
/* The same through a cache of the process: who asks again for an equal problem with equal options gets the plan that is there, in well
 * under a microsecond. Bounded; the least recently used plan makes room, and who holds it keeps it. On success *plan must be given to
 * trimul_plan_destroy, which gives it back. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_plan_acquire(const trimul_problem* problem, const trimul_plan_options* options,
                                                              trimul_plan** plan);
/* NULL is allowed. No execute of this plan may be running. */
TRIMUL_API void trimul_plan_destroy(trimul_plan* plan);

typedef struct trimul_plan_cache_info {
  size_t struct_size;
  size_t hits;   /* calls of trimul_plan_acquire that found their plan, since the process began or the cache was cleared */
  size_t misses; /* calls that made theirs; one that failed is neither */
  size_t entries;
  size_t capacity;
} trimul_plan_cache_info;

#define TRIMUL_PLAN_CACHE_INFO_INIT \
  { sizeof(trimul_plan_cache_info), 0, 0, 0, 0 }

TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_plan_cache_get_info(trimul_plan_cache_info* info);
/* Forgets every plan and the counts. Plans that are held stay what they are. */
TRIMUL_API void trimul_plan_cache_clear(void);

/* Bytes of scratch that execute needs on the plan's device. Constant for the life of the plan. The buffer must be 256-byte
 * aligned, its contents on entry do not matter, and it may be reused once the call (on a GPU: the stream) has passed. */
TRIMUL_API size_t trimul_plan_workspace_bytes(const trimul_plan* plan);
/* Name of the implementation that serves the plan. */
TRIMUL_API const char* trimul_plan_implementation(const trimul_plan* plan);
/* Compulsory traffic of the three-stage form in bytes: per pair, x read twice, a, b and y written and read, out written once,
 * plus 2 bytes of mask: B N^2 (e (3 C_z + 6 C) + 2 has_mask), e = bytes of an element of x. 18 B N^2 C for 16-bit x at
 * C = C_z without a mask. */
TRIMUL_API int64_t trimul_plan_traffic_bytes(const trimul_plan* plan);
/* Floating-point operations of the matrix products: 8 B N^2 C_z C + 2 B C N^3 + 2 B N^2 C_z (C + C_z). */
TRIMUL_API double trimul_plan_flop(const trimul_plan* plan);
/* Lower bound of the execution time in microseconds from the device's measured ceilings (sum over the three stages of the larger
 * of traffic / bandwidth and FLOP / rate); 0 where no ceilings are known, as on a CPU. */
TRIMUL_API double trimul_plan_floor_us(const trimul_plan* plan);
/* How the plan will run, as text lines "key: value", and why each better implementation declined. Owned by the plan. */
TRIMUL_API const char* trimul_plan_explain(const trimul_plan* plan);

typedef struct trimul_execute_args {
  size_t struct_size;
  const trimul_tensor* x;        /* [..., N, N, C_z], at least 3-D, contiguous */
  const trimul_tensor* mask;     /* [..., N, N] or [..., N, N, 1], any dtype above, any strides; leading dimensions broadcast against
                                    x's, token dimensions never do. NULL exactly when the plan has no mask */
  const trimul_weights* weights; /* prepared for this plan or for one with the same implementation, widths and bias presence */
  const trimul_tensor* out;      /* x's shape ([N, N, C_z] for a 4-D x with B = 1 too), contiguous, the result's dtype */
  void* workspace;               /* at least trimul_plan_workspace_bytes, 256-byte aligned; NULL allowed when that is 0 */
  size_t workspace_bytes;
  void* stream; /* GPU: the raw stream handle everything runs on. CPU: NULL */
} trimul_execute_args;

#define TRIMUL_EXECUTE_ARGS_INIT \
  { sizeof(trimul_execute_args), NULL, NULL, NULL, NULL, NULL, 0, NULL }

/* Validates the arguments against the plan, then computes. Inputs and weights are unchanged. `out` and the workspace may
 * intersect neither each other nor x, the mask or the weights; the one exception is a residual plan with `out` exactly x.
 * Violations are INVALID_ARGUMENT naming both operands, before anything is written. On a GPU: asynchronous, no allocation,
 * no synchronisation. On the CPU: returns when done. Thread-safe: any number of threads may execute one plan, each with its
 * own workspace and out. Bitwise reproducible, whatever the number of threads and whatever the rest of the batch holds. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_execute(const trimul_plan* plan, const trimul_execute_args* args);

/* As trimul_execute, for parameters that may change from call to call: packs them in front of the work, on a GPU by one small kernel on the
 * stream into the end of the workspace, and keeps nothing. args->weights is NULL; the workspace has at least
 * trimul_plan_workspace_bytes_with_parameters bytes and, as `out`, touches no parameter. Bitwise what trimul_weights_create and
 * trimul_execute give. On a GPU: no allocation, no synchronisation; the parameters are read when the stream gets there. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_execute_parameters(const trimul_plan* plan, const trimul_execute_args* args,
                                                                    const trimul_parameters* parameters);
/* Bytes of scratch that trimul_execute_parameters needs; otherwise as trimul_plan_workspace_bytes. */
TRIMUL_API size_t trimul_plan_workspace_bytes_with_parameters(const trimul_plan* plan);

/* ---- stages --------------------------------------------------------------------------------------------------------- */

/* For those who measure: the parts of which an execute consists. */
typedef struct trimul_stage_info {
  size_t struct_size;
  const char* name;      /* "input_projection", "triangle_contraction", "output_projection"; never freed */
  double flop;           /* floating-point operations of its matrix products: 8 B N^2 C_z C, 2 B C N^3, 2 B N^2 C_z (C + C_z) */
  int64_t traffic_bytes; /* compulsory: e B N^2 (C_z + 2 C) + 2 B N^2 has_mask, 3 e B N^2 C, e B N^2 (2 C_z + C); the sums over the
                            stages are trimul_plan_flop and trimul_plan_traffic_bytes */
  double floor_us;       /* larger of bytes (without the mask's) / bandwidth and FLOP / rate, measured ceilings; 0 where unknown */
} trimul_stage_info;

#define TRIMUL_STAGE_INFO_INIT \
  { sizeof(trimul_stage_info), NULL, 0, 0, 0 }

/* Stages that trimul_execute_stage runs: 3 with "cuda:sm90" and "cuda:sm80", 0 where the implementation does not divide its work, as on the
 * CPU. */
TRIMUL_API size_t trimul_plan_num_stages(const trimul_plan* plan);
/* Describes stage `index`. INVALID_ARGUMENT for an index that is not below trimul_plan_num_stages. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_plan_stage(const trimul_plan* plan, size_t index, trimul_stage_info* info);
/* Launches one stage alone, behind everything that is on the stream. Arguments, checks and errors as in trimul_execute. Stages 0 to n - 1
 * in order, with the same arguments on one stream, give bitwise what trimul_execute gives. What passes from stage to stage lies in the
 * workspace: a stage whose predecessors have not run on it computes from what is there. INVALID_ARGUMENT for an index as above. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_execute_stage(const trimul_plan* plan, size_t index, const trimul_execute_args* args);

/* ---- one call ------------------------------------------------------------------------------------------------------ */

typedef struct trimul_update_args {
  size_t struct_size;
  const trimul_tensor* x;    /* as in trimul_execute_args */
  const trimul_tensor* mask; /* or NULL */
  const trimul_parameters* parameters;
  const trimul_tensor* out;
  int32_t direction; /* a trimul_direction */
  int32_t precision; /* a trimul_precision */
  float eps;
  int32_t residual;                   /* 0 or 1 */
  const trimul_plan_options* options; /* or NULL */
  void* stream;
} trimul_update_args;

#define TRIMUL_UPDATE_ARGS_INIT \
  { sizeof(trimul_update_args), NULL, NULL, NULL, NULL, TRIMUL_OUTGOING, TRIMUL_PRECISION_DEFAULT, 1e-5f, 0, NULL, NULL }

/* Plan, weights, workspace and execute in one call, all shapes read from the tensors (C from p_in_weight). For programs that
 * run an update once: allocates the workspace, after it has checked all arguments, and returns when the result is there, on a GPU too.
 * `out` may not intersect a parameter either. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_update(const trimul_update_args* args);

/* ---- the fp64 reference -------------------------------------------------------------------------------------------- */

typedef enum trimul_rounding {
  TRIMUL_ROUNDING_NONE = 0,  /* fp64 throughout, from the stored inputs */
  TRIMUL_ROUNDING_KERNEL = 1 /* rounds where the GPU kernels round (docs/numerics.md); the output itself stays unrounded */
} trimul_rounding;

/* The oracle: plain fp64 loops. Shapes, mask forms and parameters as in trimul_update; precision and x's dtype decide the
 * rounding points. cells == NULL: `result` receives all B*N*N*C_z values, row-major. Else `cells` holds num_cells triples
 * (b, i, j) and `result` receives num_cells * C_z values, at a cost of O(N C C_z) a cell, for extents where the whole
 * reference is out of reach; num_cells == 0 only checks the arguments. CPU tensors only; args->out, options and stream are ignored. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_reference(const trimul_update_args* args, trimul_rounding rounding, const int64_t* cells,
                                                           size_t num_cells, double* result);

/* ---- device memory ------------------------------------------------------------------------------------------------- */

/* Plain memory on a device, for programs that have no other means (the command, scripts over this ABI). Hosts with a framework pass its
 * tensors instead. 256-byte aligned. OUT_OF_MEMORY, UNSUPPORTED or INVALID_ARGUMENT for a device that does not exist. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_memory_allocate(trimul_device device, size_t bytes, void** memory);
/* NULL is allowed. */
TRIMUL_API void trimul_memory_free(trimul_device device, void* memory);
/* Copies between host and device, or within either; `stream` as in execute. Returns when the copy is done and everything before it on the
 * stream has finished, so that a copy of `bytes` = 0 waits for the stream. DEVICE_ERROR also for errors of kernels launched before. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_memory_copy(trimul_device to_device, void* to, trimul_device from_device, const void* from,
                                                             size_t bytes, void* stream);

/* ---- build and machine --------------------------------------------------------------------------------------------- */

/* Number of GPUs this build can use: 0 without CUDA support, driver or device. Never fails. */
TRIMUL_API int32_t trimul_cuda_device_count(void);
/* One line naming a device ("CPU, 2 threads, avx512"). NULL for one that does not exist, and where TRIMUL_NUM_THREADS is malformed
 * (trimul_last_error says so). Valid until this thread's next call. */
TRIMUL_API const char* trimul_device_description(trimul_device device);
/* Measured ceilings of a device: bytes a copy kernel reads and writes and FLOP of a large bf16 product, per microsecond. 0 where nobody has
 * measured, as for CPUs. UNSUPPORTED or INVALID_ARGUMENT for a device that does not exist. */
TRIMUL_NODISCARD TRIMUL_API trimul_status trimul_device_ceilings(trimul_device device, double* bytes_per_us, double* flop_per_us);
/* How the library was built, text lines "key: value" (commit or "unknown", with "-dirty" where files differed from it; compiler, oneDNN
 * version or "none", CUDA architectures or "none"). */
TRIMUL_API const char* trimul_build_info(void);

#if defined(__cplusplus)
} /* extern "C" */
#endif

#endif /* TRIMUL_TRIMUL_H */
