/* What a package of Weft exports: a model that goes one step at a time, as a descriptor with functions and a state in
 * the caller's memory. The layout of these structs is stable: a later version of it has another WEFT_MODEL_ABI.
 *
 * No function here allocates, locks, calls the system or throws, and none needs a library. A state belongs to one
 * caller at a time; any number of states may be used by any number of threads.
 */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_MODEL_ABI 1

/* What the functions return. */
enum weft_status {
  WEFT_OK = 0,
  WEFT_NO_MEMORY = 1,   /* a state, or saved bytes, that is a null pointer */
  WEFT_OTHER_STATE = 2, /* memory that this model's reset has not prepared; saved bytes of another model or size */
  WEFT_BAD_VALUE = 3    /* an index outside its table, or an integer divided by 0; the state is as it was before */
};

enum weft_dtype {
  WEFT_BOOL = 0, /* a byte, 0 or 1 */
  WEFT_I32 = 4,
  WEFT_I64 = 5,
  WEFT_F16 = 6,
  WEFT_BF16 = 7,
  WEFT_F32 = 8,
  WEFT_F64 = 9
};

/* A dense tensor, the last dim's elements next to each other. */
typedef struct weft_tensor {
  const char* name;
  int32_t dtype; /* weft_dtype */
  uint32_t rank;
  const int64_t* sizes; /* [rank] */
  size_t bytes;
} weft_tensor;

typedef struct weft_model {
  uint32_t abi; /* WEFT_MODEL_ABI: if it is another, nothing behind it may be read */
  uint32_t input_count, output_count, state_count;
  const char* name;
  const char* target;   /* the machine that the code is for: "x86-64-v3" */
  uint64_t fingerprint; /* of the model's computation and weights */
  const weft_tensor *inputs, *outputs, *states;

  size_t state_bytes, state_align; /* of the memory of one state */
  size_t saved_bytes;

  /* Makes a state of `state_bytes` bytes, aligned to `state_align`: the model before its first step. */
  int (*reset)(void* state);
  /* One step. inputs[i] and outputs[i] are tensors as described; none may share memory with another or the state. */
  int (*step)(void* state, const void* const* inputs, void* const* outputs);
  /* `steps` steps. inputs[i] is a stack [steps, ...] of what a step takes, outputs[i] of what it gives. The results are
   * those of so many calls of step, to the bit. */
  int (*run)(void* state, const void* const* inputs, void* const* outputs, size_t steps);
  /* Writes `saved_bytes` bytes that any package of this model can restore, on any target of the same byte order. (As
   * memory a state may be copied to another address, too, but only for the same library.) */
  int (*save)(const void* state, void* saved);
  int (*restore)(void* state, const void* saved, size_t bytes);
} weft_model;

#ifdef __cplusplus
}
#endif

#endif
