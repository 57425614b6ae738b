/* Steps of a packaged model's shared library in a process whose allocator and locks end it: from the first step on, who
 * calls malloc and its kin, or locks, waits or starts a thread by pthread, is named and aborts.
 *
 * Usage: interposed LIBRARY FUNCTION STEPS [malloc|mutex|thread]
 *
 * With a last word it does that itself between two steps, and so shows that it would be seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft_model.h"

static volatile int armed;

static void seen(const char* what) {
  if (!armed) return;
  armed = 0;
  const char text[] = "interposed: called while steps ran: ";
  if (write(2, text, sizeof text - 1) < 0 || write(2, what, strlen(what)) < 0 || write(2, "\n", 1) < 0) _exit(9);
  abort();
}

/* glibc's own, by the names that it has for those who replace them. */
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

void* malloc(size_t bytes) {
  seen("malloc");
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  seen("calloc");
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  seen("realloc");
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t align, size_t bytes) {
  seen("memalign");
  return __libc_memalign(align, bytes);
}
void* aligned_alloc(size_t align, size_t bytes) {
  seen("aligned_alloc");
  return __libc_memalign(align, bytes);
}
int posix_memalign(void** memory, size_t align, size_t bytes) {
  seen("posix_memalign");
  *memory = __libc_memalign(align, bytes);
  return *memory == NULL;
}
void free(void* memory) {
  seen("free");
  __libc_free(memory);
}

/* A function of pthread that says its name and goes on to glibc's. */
#define PASSED_ON(name, parameters, arguments)                  \
  int name parameters {                                         \
    static int(*real) parameters;                               \
    seen(#name);                                                \
    if (real == NULL) *(void**)&real = dlsym(RTLD_NEXT, #name); \
    return real arguments;                                      \
  }

PASSED_ON(pthread_create, (pthread_t * thread, const pthread_attr_t* how, void* (*run)(void*), void* with),
          (thread, how, run, with))
PASSED_ON(pthread_join, (pthread_t thread, void** result), (thread, result))
PASSED_ON(pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
PASSED_ON(pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex))
PASSED_ON(pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex))
PASSED_ON(pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
PASSED_ON(pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
PASSED_ON(pthread_cond_wait, (pthread_cond_t * when, pthread_mutex_t* mutex), (when, mutex))
PASSED_ON(pthread_cond_signal, (pthread_cond_t * when), (when))
PASSED_ON(pthread_cond_broadcast, (pthread_cond_t * when), (when))
PASSED_ON(pthread_once, (pthread_once_t * once, void (*run)(void)), (once, run))

static void* nothing(void* with) { return with; }

static void provoke(const char* what) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  if (strcmp(what, "malloc") == 0) free(malloc(1));
  if (strcmp(what, "mutex") == 0) pthread_mutex_lock(&mutex);
  pthread_t thread;
  if (strcmp(what, "thread") == 0 && pthread_create(&thread, NULL, nothing, NULL) == 0) pthread_join(thread, NULL);
}

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "interposed: %s\n", dlerror());
    return 2;
  }
  const weft_model* (*get)(void) = NULL;
  *(void**)&get = dlsym(library, argv[2]);
  if (get == NULL) return 2;
  const size_t steps = (size_t)atol(argv[3]);
  armed = 1;
  const weft_model* model = get();
  armed = 0;
  const void* inputs[64];
  void* outputs[64];
  for (uint32_t i = 0; i < model->input_count; ++i) inputs[i] = calloc(1, model->inputs[i].bytes + 1);
  for (uint32_t i = 0; i < model->output_count; ++i) outputs[i] = calloc(1, model->outputs[i].bytes + 1);
  void* state = aligned_alloc(model->state_align,
                              (model->state_bytes + model->state_align) / model->state_align * model->state_align);
  void* saved = malloc(model->saved_bytes);
  armed = 1;
  int status = model->reset(state);
  for (size_t t = 0; t < steps && status == WEFT_OK; ++t) {
    status = model->step(state, inputs, outputs);
    if (t == steps / 2 && status == WEFT_OK && argc == 5) provoke(argv[4]);
  }
  if (status == WEFT_OK) status = model->run(state, inputs, outputs, 1);
  if (status == WEFT_OK) status = model->save(state, saved);
  if (status == WEFT_OK) status = model->restore(state, saved, model->saved_bytes);
  armed = 0;
  return status;
}
