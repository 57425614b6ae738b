/* How long each step of a packaged model takes: the same sequence of steps, several times over.
 *
 * Usage: step_times LIBRARY FUNCTION STEPS TURNS INPUT
 *
 * INPUT has the sequence, stacks of the model's inputs one after the other. Prints nanoseconds with the two looks at
 * the clock around a step: over all steps of all turns the median, 99.9 % and the slowest; then over the steps, of each
 * the least of its turns, the median and the slowest. The former have what else runs on the machine, the latter what
 * the step itself does with one input and another.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "weft_model.h"

static void fail(const char* why) {
  fprintf(stderr, "step_times: %s\n", why);
  exit(1);
}

static void* memory(size_t bytes) {
  void* made = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (made == NULL) fail("there is no memory");
  return made;
}

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int by_size(const void* a, const void* b) {
  const long x = *(const long*)a, y = *(const long*)b;
  return (x > y) - (x < y);
}

static const weft_model* find(const char* library, const char* function) {
  void* loaded = dlopen(library, RTLD_NOW);
  if (loaded == NULL) fail(dlerror());
  const weft_model* (*get)(void) = NULL;
  *(void**)&get = dlsym(loaded, function);
  if (get == NULL || get()->abi != WEFT_MODEL_ABI) fail("it is no package that this program knows");
  return get();
}

int main(int argc, char** argv) {
  if (argc != 6) fail("LIBRARY FUNCTION STEPS TURNS INPUT");
  const weft_model* model = find(argv[1], argv[2]);
  const size_t steps = (size_t)atol(argv[3]), turns = (size_t)atol(argv[4]);
  char* given[64];
  const void* inputs[64];
  void* outputs[64];
  FILE* file = fopen(argv[5], "rb");
  if (file == NULL || steps == 0 || turns == 0) fail("there is no input");
  for (unsigned i = 0; i < model->input_count; ++i) {
    given[i] = memory(steps * model->inputs[i].bytes);
    if (fread(given[i], model->inputs[i].bytes, steps, file) != steps) fail("the input is short");
  }
  fclose(file);
  for (unsigned i = 0; i < model->output_count; ++i) outputs[i] = memory(model->outputs[i].bytes);
  void* state = memory(model->state_bytes + model->state_align);
  long *all = memory(steps * turns * sizeof(long)), *least = memory(steps * sizeof(long));
  for (size_t turn = 0; turn < turns; ++turn) {
    model->reset(state);
    for (size_t t = 0; t < steps; ++t) {
      for (unsigned i = 0; i < model->input_count; ++i) inputs[i] = given[i] + t * model->inputs[i].bytes;
      const long begin = now();
      const int status = model->step(state, inputs, outputs);
      const long took = now() - begin;
      if (status != WEFT_OK) fail("a step failed");
      all[turn * steps + t] = took;
      if (turn == 0 || took < least[t]) least[t] = took;
    }
  }
  const size_t count = steps * turns;
  qsort(all, count, sizeof(long), by_size);
  qsort(least, steps, sizeof(long), by_size);
  printf("%ld %ld %ld %ld %ld\n", all[count / 2], all[count * 999 / 1000], all[count - 1], least[steps / 2],
         least[steps - 1]);
  return 0;
}
