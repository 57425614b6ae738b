/* Removes noise from a sound as it comes: raw floats at 16 kHz from standard input to standard output, a frame of 128
 * samples at a time. The result is 128 samples late. Of a last frame that isn't full only as much is written.
 *
 * Usage: denoise < noisy.raw > clean.raw
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "denoiser.h"

static _Alignas(DENOISER_STATE_ALIGN) unsigned char state[DENOISER_STATE_BYTES];

static double now(void) {
  struct timespec time;
  timespec_get(&time, TIME_UTC);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(void) {
  const weft_model* model = denoiser_model();
  float in[DENOISER_CHUNK], out[DENOISER_CHUNK];
  if (model->abi != WEFT_MODEL_ABI || model->inputs[0].bytes != sizeof in || model->reset(state) != WEFT_OK) {
    fprintf(stderr, "denoise: the package is not one of this program's\n");
    return 1;
  }
  const void* inputs[] = {in};
  void* outputs[] = {out};
  double spent = 0;
  unsigned long frames = 0;
  for (size_t count = DENOISER_CHUNK; count == DENOISER_CHUNK; ++frames) {
    count = fread(in, sizeof(float), DENOISER_CHUNK, stdin);
    if (count == 0) break;
    memset(in + count, 0, (DENOISER_CHUNK - count) * sizeof(float));
    const double begin = now();
    const int status = model->step(state, inputs, outputs);
    spent += now() - begin;
    if (status != WEFT_OK) {
      fprintf(stderr, "denoise: the model ends with status %d\n", status);
      return 1;
    }
    if (fwrite(out, sizeof(float), count, stdout) != count) {
      fprintf(stderr, "denoise: the output can't be written\n");
      return 1;
    }
  }
  if (ferror(stdin) || fflush(stdout) != 0) {
    fprintf(stderr, "denoise: reading or writing failed\n");
    return 1;
  }
  fprintf(stderr, "%lu frames of 8 ms, %.1f us each\n", frames, frames == 0 ? 0.0 : 1e6 * spent / (double)frames);
  return 0;
}
