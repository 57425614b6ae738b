/* Runs a packaged model on stacks of inputs from one file, and writes stacks of outputs to another: first by steps,
 * after reset, then in chunks, whose results must be the same to the bit. A state is saved and restored between.
 *
 * Usage: driver STEPS INPUT OUTPUT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft_model.h"

const weft_model* MODEL(void);

static void fail(const char* why) {
  fprintf(stderr, "driver: %s\n", why);
  exit(1);
}

static char* aligned(size_t bytes, size_t align) {
  char* memory = malloc(bytes + align);
  if (memory == NULL) fail("no memory");
  return memory + (align - (size_t)memory % align) % align;
}

typedef struct {
  char* data[64];
} stacks;

static void begin(const stacks* all, const weft_tensor* tensors, uint32_t count, size_t step, void** at) {
  for (uint32_t i = 0; i < count; ++i) at[i] = all->data[i] + step * tensors[i].bytes;
}

int main(int argc, char** argv) {
  const weft_model* model = MODEL();
  if (argc != 4) fail("STEPS INPUT OUTPUT");
  if (model->abi != WEFT_MODEL_ABI) fail("another ABI");
  const size_t steps = (size_t)atol(argv[1]);
  stacks in, out, again, third;
  FILE* file = fopen(argv[2], "rb");
  if (file == NULL) fail("no input");
  for (uint32_t i = 0; i < model->input_count; ++i) {
    const size_t bytes = steps * model->inputs[i].bytes;
    in.data[i] = aligned(bytes + 1, 1);
    if (fread(in.data[i], 1, bytes, file) != bytes) fail("a short input");
  }
  fclose(file);
  for (uint32_t i = 0; i < model->output_count; ++i) {
    out.data[i] = aligned(steps * model->outputs[i].bytes + 1, 1);
    again.data[i] = aligned(steps * model->outputs[i].bytes + 1, 1);
    third.data[i] = aligned(steps * model->outputs[i].bytes + 1, 1);
  }
  void *state = aligned(model->state_bytes, model->state_align), *inputs[64], *outputs[64];
  char* saved = aligned(model->saved_bytes, 1);
  memset(state, 0x5a, model->state_bytes);
  if (model->step(state, (const void* const*)inputs, outputs) != WEFT_OTHER_STATE) fail("a step without a state");
  if (model->step(NULL, (const void* const*)inputs, outputs) != WEFT_NO_MEMORY) fail("a step on a null pointer");
  if (model->reset(state) != WEFT_OK) fail("reset");
  for (size_t t = 0; t < steps; ++t) {
    begin(&in, model->inputs, model->input_count, t, inputs);
    begin(&out, model->outputs, model->output_count, t, outputs);
    const int status = model->step(state, (const void* const*)inputs, outputs);
    if (status != WEFT_OK) {
      fprintf(stderr, "driver: step %lu gives status %d\n", (unsigned long)t, status);
      return 3;
    }
  }
  if (model->reset(state) != WEFT_OK) fail("reset again");
  size_t t = 0;
  for (size_t chunk = 1; t < steps; chunk = chunk * 2 + 1) {
    const size_t count = chunk < steps - t ? chunk : steps - t;
    begin(&in, model->inputs, model->input_count, t, inputs);
    begin(&again, model->outputs, model->output_count, t, outputs);
    if (model->run(state, (const void* const*)inputs, outputs, count) != WEFT_OK) fail("run");
    t += count;
    if (model->save(state, saved) != WEFT_OK) fail("save");
    memset(state, 0x5a, model->state_bytes);
    if (model->restore(state, saved, model->saved_bytes - 1) != WEFT_OTHER_STATE) fail("restore of too little");
    if (model->restore(state, saved, model->saved_bytes) != WEFT_OK) fail("restore");
  }
  if (model->reset(state) != WEFT_OK) fail("reset for chunks of one length");
  for (t = 0; t < steps; t += 17) {
    begin(&in, model->inputs, model->input_count, t, inputs);
    begin(&third, model->outputs, model->output_count, t, outputs);
    if (model->run(state, (const void* const*)inputs, outputs, steps - t < 17 ? steps - t : 17) != WEFT_OK) fail("run");
  }
  saved[0] ^= 1;
  if (model->restore(state, saved, model->saved_bytes) != WEFT_OTHER_STATE) fail("restore of another model's state");
  file = fopen(argv[3], "wb");
  if (file == NULL) fail("no output");
  for (uint32_t i = 0; i < model->output_count; ++i) {
    const size_t bytes = steps * model->outputs[i].bytes;
    if (memcmp(out.data[i], again.data[i], bytes) != 0) fail("chunks differ from steps");
    if (memcmp(out.data[i], third.data[i], bytes) != 0) fail("chunks of one length differ from steps");
    if (fwrite(out.data[i], 1, bytes, file) != bytes) fail("write");
  }
  fclose(file);
  return 0;
}
