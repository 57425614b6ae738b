/* A million steps of a packaged model in a process that may do nothing but compute: after the first step, any call of the system
 * but for the last one kills it (seccomp), and states, inputs and outputs end where a page begins that faults. */
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "weft_model.h"

const weft_model* MODEL(void);

/* Memory that ends at a page which faults, but for what `align` takes; it begins behind such a page if it is whole
 * pages. */
static void* guarded(size_t bytes, size_t align) {
  const size_t page = 4096, size = (bytes + align - 1) / align * align, whole = (size + page - 1) / page * page;
  char* memory = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory + page, whole, PROT_READ | PROT_WRITE) != 0) exit(1);
  return memory + page + whole - size;
}

int main(void) {
  const weft_model* model = MODEL();
  const void* inputs[64];
  void* outputs[64];
  for (uint32_t i = 0; i < model->input_count; ++i) inputs[i] = guarded(model->inputs[i].bytes, 1);
  for (uint32_t i = 0; i < model->output_count; ++i) outputs[i] = guarded(model->outputs[i].bytes, 1);
  void* state = guarded(model->state_bytes, model->state_align);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) {
    perror("seccomp");
    return 77;
  }
  int status = model->reset(state);
  for (int t = 0; t < 1000000 && status == WEFT_OK; ++t) status = model->step(state, inputs, outputs);
  if (status == WEFT_OK) status = model->run(state, inputs, outputs, 1);
  syscall(SYS_exit, status);
  return 1;
}
