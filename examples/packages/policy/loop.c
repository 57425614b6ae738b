/* Holds a bearing with the packaged policy, 10,000 times a second, and says how long each step took and how late it
 * began.
 *
 * Usage: loop NOISE TRACE [RATE]
 *
 * NOISE has a float a step: by how many deviations the measured position is off. TRACE gets four floats a step:
 * what was measured (position, the current before), the current and the value that the policy gave. RATE is in steps a
 * second, 10000 unless it is given; 0 is as fast as possible.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "policy.h"

static _Alignas(POLICY_STATE_ALIGN) unsigned char state[POLICY_STATE_BYTES];

/* As in model.py. */
static const float kPull = 0.01f, kCoil = 0.02f, kLoad = 0.004f, kNoise = 0.02f;

typedef struct {
  float position, speed, current;
} bearing;

typedef struct {
  size_t count;
  float *noise, *trace; /* [count], [count, 4] */
  int64_t *took, *late; /* [count] nanoseconds */
} record;

static void fail(const char* why) {
  fprintf(stderr, "loop: %s\n", why);
  exit(1);
}

static void* memory(size_t bytes) {
  void* made = malloc(bytes + 1);
  if (made == NULL) fail("there is no memory");
  return made;
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void wait_until(int64_t when) {
  const struct timespec time = {when / 1000000000, when % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) continue;
}

static record read_noise(const char* path) {
  FILE* file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) fail("the noise can't be read");
  record all = {(size_t)ftell(file) / sizeof(float), NULL, NULL, NULL, NULL};
  rewind(file);
  all.noise = memory(all.count * sizeof(float));
  if (fread(all.noise, sizeof(float), all.count, file) != all.count) fail("the noise is short");
  fclose(file);
  all.trace = memory(all.count * 4 * sizeof(float));
  all.took = memory(all.count * sizeof(int64_t));
  all.late = memory(all.count * sizeof(int64_t));
  return all;
}

/* The loop itself allocates nothing; its only calls of the system are those for the time. */
static void hold(const weft_model* model, record* all, int64_t period) {
  bearing held = {0.2f, 0, 0};
  const int64_t begin = now();
  for (size_t t = 0; t < all->count; ++t) {
    const int64_t due = begin + (int64_t)t * period;
    if (period > 0) wait_until(due);
    const int64_t woken = now();
    float* row = all->trace + 4 * t;
    row[0] = held.position + kNoise * all->noise[t];
    row[1] = held.current;
    const void* inputs[] = {row};
    void* outputs[] = {row + 2, row + 3};
    const int status = model->step(state, inputs, outputs);
    all->took[t] = now() - woken;
    all->late[t] = period > 0 ? woken - due : 0;
    if (status != WEFT_OK) fail("the policy's step failed");
    held.current = row[2];
    held.speed += kPull * held.position + kCoil * held.current + kLoad * 0.5f;
    held.position += held.speed;
  }
}

static int by_size(const void* a, const void* b) {
  const int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

static void say(const char* what, int64_t* times, size_t count) {
  if (count == 0) return;
  qsort(times, count, sizeof *times, by_size);
  printf("%s median %lld ns, 99.9 %% %lld ns, max %lld ns\n", what, (long long)times[count / 2],
         (long long)times[count * 999 / 1000], (long long)times[count - 1]);
}

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) fail("usage: loop NOISE TRACE [RATE]");
  const double rate = argc == 4 ? atof(argv[3]) : 10000;
  if (!(rate >= 0 && rate <= 1e6)) fail("the rate is a number of steps a second, up to a million, or 0");
  const weft_model* model = policy_model();
  if (model->abi != WEFT_MODEL_ABI || model->input_count != 1 || model->output_count != 2 ||
      model->inputs[0].bytes != 2 * sizeof(float) || model->reset(state) != WEFT_OK)
    fail("the package is not one of this program's");
  record all = read_noise(argv[1]);
  if (mlockall(MCL_CURRENT) != 0) fprintf(stderr, "loop: memory isn't locked: pages may be away\n");
  hold(model, &all, rate > 0 ? (int64_t)(1e9 / rate) : 0);
  FILE* file = fopen(argv[2], "wb");
  if (file == NULL || fwrite(all.trace, 4 * sizeof(float), all.count, file) != all.count || fclose(file) != 0)
    fail("the trace can't be written");
  double square = 0;
  const size_t half = all.count / 2;
  for (size_t t = half; t < all.count; ++t)
    square += pow(all.trace[4 * t] - kNoise * all.noise[t], 2) / (double)(all.count - half);
  printf("%zu steps, position off by %.4f\n", all.count, sqrt(square));
  say("step", all.took, all.count);
  if (rate > 0) say("late", all.late, all.count);
  free(all.noise), free(all.trace), free(all.took), free(all.late);
  return 0;
}
